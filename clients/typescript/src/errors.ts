import type { Job, Problem, ProblemType } from "./types.js";

/** The base of every error of this client. */
export class EclusaError extends Error {
  override name = "EclusaError";
}

/** The server could not be reached, the response was incomplete, or it did not come from the server. */
export class ConnectionError extends EclusaError {
  override name = "ConnectionError";
}

/** The job did not end in time; `job` is its last known state. */
export class WaitTimeoutError extends EclusaError {
  override name = "WaitTimeoutError";
  constructor(readonly job: Job) {
    super(`job ${job.jobId} did not end in time: its status is ${job.status}`);
  }
}

/** A webhook has no valid signature, or is too old. */
export class WebhookVerificationError extends EclusaError {
  override name = "WebhookVerificationError";
}

/** The server answered with problem details (RFC 9457). */
export class ProblemError extends EclusaError {
  override name = "ProblemError";
  /** The HTTP status. */
  readonly status: number;
  /** For example `urn:eclusa:problem:queue-full`. */
  readonly type: ProblemType;
  /** What is wrong, where, and how to fix it. */
  readonly detail: string;

  constructor(
    /** The problem as received, with the members of its type. */
    readonly problem: Problem,
    /** Seconds after which to retry, if the server says so. */
    readonly retryAfter: number | undefined,
  ) {
    super(`${problem.status} ${problem.title}: ${problem.detail}`);
    this.status = problem.status;
    this.type = problem.type;
    this.detail = problem.detail;
  }
}

/** 401: the key is missing or unknown. */
export class UnauthorizedError extends ProblemError {
  override name = "UnauthorizedError";
}
/** 403: the key does not allow this. */
export class ForbiddenError extends ProblemError {
  override name = "ForbiddenError";
}
/** 404: no such job, lane, upstream, lease or dead letter. */
export class NotFoundError extends ProblemError {
  override name = "NotFoundError";
}
/** 409: the current state does not allow it. */
export class ConflictError extends ProblemError {
  override name = "ConflictError";
}
/** 400, 413 and 422: the request is wrong; `problem.errors` names the fields, if known. */
export class InvalidError extends ProblemError {
  override name = "InvalidError";
}
/** 429: a gate denies the call now; see `retryAfter` and `problem.reason`. */
export class QuotaExceededError extends ProblemError {
  override name = "QuotaExceededError";
}
/** 503: the lane is full, the store does not answer, or the server is stopping. */
export class UnavailableError extends ProblemError {
  override name = "UnavailableError";
}

const CLASSES: Record<number, typeof ProblemError> = {
  400: InvalidError,
  401: UnauthorizedError,
  403: ForbiddenError,
  404: NotFoundError,
  409: ConflictError,
  413: InvalidError,
  422: InvalidError,
  429: QuotaExceededError,
  503: UnavailableError,
};

/** Converts an error response to an error. */
export async function problemOf(response: Response): Promise<ProblemError> {
  const text = await response.text();
  let problem: Problem;
  try {
    problem = JSON.parse(text) as Problem;
    const texts = [problem.type, problem.title, problem.detail];
    if (typeof problem.status !== "number" || !texts.every((text) => typeof text === "string")) {
      throw new TypeError("no problem details");
    }
  } catch {
    // The response comes from something between the server and this client.
    problem = {
      type: "about:blank" as ProblemType,
      title: response.statusText || "Unexpected response",
      status: response.status,
      detail: text.slice(0, 500),
    };
  }
  const after = response.headers.get("retry-after");
  const seconds = after !== null && /^\d+$/.test(after) ? Number(after) : undefined;
  return new (CLASSES[response.status] ?? ProblemError)(problem, seconds);
}
