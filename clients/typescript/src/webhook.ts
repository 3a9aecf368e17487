import { createHmac, timingSafeEqual } from "node:crypto";
import { WebhookVerificationError } from "./errors.js";
import type { Job } from "./types.js";

/** The minimum length the server requires of `[callbacks] secret`. */
const SHORTEST_SECRET = 16;

/** Headers as `fetch` or as `node:http` has them. */
export type WebhookHeaders = Headers | Record<string, string | string[] | undefined>;

export interface WebhookOptions {
  /** `[callbacks] secret` of the server: text, or base64 after `whsec_`; at least 16 characters. */
  secret: string;
  headers: WebhookHeaders;
  /** The raw body, not parsed. */
  body: string | Uint8Array;
  /** Maximum difference between its timestamp and now, in seconds. Default 300. */
  tolerance?: number;
  /** The current time in milliseconds; for tests. */
  now?: number;
}

/**
 * Checks that a callback comes from the server (Standard Webhooks) and returns the job that has ended. A message may be
 * delivered twice: remember `webhook-id`.
 */
export function verifyWebhook<T = Job>(options: WebhookOptions): T {
  const { secret, headers, tolerance = 300, now = Date.now() } = options;
  const [id, timestamp, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) =>
    headerOf(headers, name),
  ) as [string, string, string];
  const age = now / 1000 - Number(timestamp);
  if (!/^\d+$/.test(timestamp) || Math.abs(age) > tolerance) {
    throw new WebhookVerificationError(`webhook-timestamp is ${timestamp}: too old, or not a time near now`);
  }
  const key = keyOf(secret);
  const body = Buffer.from(options.body as string);
  const expected = createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest();
  const genuine = signatures.split(" ").some((signature) => {
    if (!signature.startsWith("v1,")) return false;
    const given = Buffer.from(signature.slice(3), "base64");
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
  if (!genuine) throw new WebhookVerificationError("webhook-signature does not match the body and the secret");
  return JSON.parse(body.toString("utf8")) as T;
}

function keyOf(secret: string): Buffer {
  if (!secret || secret.length < SHORTEST_SECRET) {
    throw new WebhookVerificationError(`the secret is missing or shorter than ${SHORTEST_SECRET} characters`);
  }
  if (!secret.startsWith("whsec_")) return Buffer.from(secret);
  const encoded = secret.slice("whsec_".length);
  const key = Buffer.from(encoded, "base64");
  // `Buffer.from` ignores characters that are not base64.
  if (key.toString("base64") !== encoded) throw new WebhookVerificationError("the secret after whsec_ is not base64");
  return key;
}

function headerOf(headers: WebhookHeaders, name: string): string {
  const value = headers instanceof Headers ? headers.get(name) : headers[name];
  if (typeof value !== "string" || value === "") throw new WebhookVerificationError(`the header ${name} is missing`);
  return value;
}
