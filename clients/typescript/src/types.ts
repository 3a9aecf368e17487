/** The API's own types, by their names in its OpenAPI document. */

import type { components, operations } from "./openapi.js";

type Schemas = components["schemas"];

export type Accepted = Schemas["Accepted"];
export type Acquired = Schemas["Acquired"];
export type AcquireRequest = Schemas["AcquireRequest"];
export type BatchAnswer = Schemas["BatchAnswer"];
export type BulkReplay = Schemas["BulkReplay"];
export type CachedAnswer = Schemas["CachedAnswer"];
export type DeadLetter = Schemas["DeadLetter"];
export type DeadLetterFilter = Schemas["FilterBody"];
export type DeadLetterList = Schemas["DeadLetterList"];
export type Gate = Schemas["Gate"];
export type Job = Schemas["Job"];
export type JobEvent = Schemas["JobEvent"];
export type JobList = Schemas["JobList"];
export type JobRequest = Schemas["JobRequest"];
export type JobStatus = Schemas["JobStatus"];
export type Problem = Schemas["Problem"];
export type ProblemType = Schemas["ProblemType"];
export type SettleRequest = Schemas["SettleRequest"];
export type Why = Schemas["WhyAnswer"];

export type JobFilter = NonNullable<operations["searchJobs"]["parameters"]["query"]>;
export type DeadLetterQuery = NonNullable<operations["listDeadLetters"]["parameters"]["query"]>;
