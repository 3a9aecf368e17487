export * from "./client.js";
export * from "./errors.js";
export type { Options } from "./http.js";
export type * from "./types.js";
export type { components, operations, paths } from "./openapi.js";
export * from "./webhook.js";
