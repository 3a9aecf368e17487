import { randomUUID } from "node:crypto";
import { WaitTimeoutError, type ProblemError } from "./errors.js";
import { Http, pause, type Call, type Options } from "./http.js";
import { readEvents } from "./sse.js";
import type * as api from "./types.js";

/** Seconds per long poll; servers usually allow more. */
const POLL = 20;
/** Maximum seconds that `acquire` waits; the server's `max_wait` is usually shorter. */
const MAX_WAIT = 600;
/** Milliseconds between two polls of a server that does not wait. */
const PAUSE = 200;

export interface CallOptions {
  signal?: AbortSignal;
}
export interface JobOptions extends CallOptions {
  /** The lane of the job, if jobs of other lanes have the same id. */
  lane?: string;
}
export interface EnqueueOptions extends CallOptions {
  /** Sending the same key again returns the same job. Generated if neither this nor the job's `id` is set. */
  idempotencyKey?: string;
  /** Seconds to wait for the end of the job; limited by the server's `max_wait`. */
  wait?: number;
}
export interface WaitOptions extends JobOptions {
  /** Milliseconds until {@link WaitTimeoutError}. Default: no limit. */
  timeout?: number;
}
export interface EventsOptions extends JobOptions {
  /** Resume after this event: the `id` of the last one seen. */
  lastEventId?: number;
}
/** One entry of a job's timeline; `id` is its number. */
export type FollowedEvent = api.JobEvent & { id: number };

/** The result of a call, as a worker reports it. */
export type CallResult = number | "timeout" | "connection_error" | "not_sent";

/** Whether a job has ended. */
export function isFinal(status: api.JobStatus): boolean {
  return status === "completed" || status === "failed" || status === "dropped" || status === "cancelled";
}

/** A client of one server. */
export class Eclusa {
  readonly #http: Http;
  readonly deadLetters: DeadLetters;

  constructor(options: Options = {}) {
    this.#http = new Http(options);
    this.deadLetters = new DeadLetters(this.#http);
  }

  /**
   * Enqueues a job. Safe to repeat: a job without `id` gets an idempotency key, so a retry after a lost connection is the same
   * job. Returns what was accepted; the job itself if `wait` was given and it ended in time; or an answer from the cache.
   */
  async enqueue(
    lane: string,
    job: api.JobRequest,
    options: EnqueueOptions = {},
  ): Promise<api.Accepted | api.Job | api.CachedAnswer> {
    const headers: Record<string, string> = {};
    const key = options.idempotencyKey ?? (job.id ? undefined : randomUUID());
    if (key !== undefined) headers["idempotency-key"] = key;
    const call: Call = { body: job, headers, signal: options.signal };
    if (options.wait !== undefined) {
      call.wait = Math.ceil(options.wait);
      headers["prefer"] = `wait=${call.wait}`;
    }
    return await this.#http.json("POST", `/v1/lanes/${encodeURIComponent(lane)}/jobs`, call);
  }

  /** Enqueues up to 1000 jobs. Returns one result per job: accepted, answered from the cache, or a problem. */
  async enqueueBatch(lane: string, jobs: api.JobRequest[], options: CallOptions = {}): Promise<api.BatchAnswer[]> {
    const body = jobs.map((job) => (job.id ? job : { ...job, id: randomUUID() }));
    return await this.#http.json("POST", `/v1/lanes/${encodeURIComponent(lane)}/jobs/batch`, { body, ...options });
  }

  /** Enqueues a job and waits for its end. An answer from the cache is a completed job without an id. */
  async run(
    lane: string,
    job: api.JobRequest,
    options: WaitOptions & { idempotencyKey?: string } = {},
  ): Promise<api.Job | api.CachedAnswer> {
    const { timeout = Infinity, signal, idempotencyKey } = options;
    const deadline = Date.now() + timeout;
    const enqueue: EnqueueOptions = { wait: Math.min(POLL, Math.ceil(timeout / 1000)) };
    if (signal) enqueue.signal = signal;
    if (idempotencyKey !== undefined) enqueue.idempotencyKey = idempotencyKey;
    const answer = await this.enqueue(lane, job, enqueue);
    if ("timeline" in answer || !("jobId" in answer)) return answer;
    return await this.wait(answer.jobId, { ...options, timeout: Math.max(0, deadline - Date.now()) });
  }

  /** Waits until the job has ended, with any status, and returns it. */
  async wait(id: string, options: WaitOptions = {}): Promise<api.Job> {
    const deadline = Date.now() + (options.timeout ?? Infinity);
    const path = `/v1/jobs/${encodeURIComponent(id)}/wait`;
    for (;;) {
      const timeout = Math.min(POLL, Math.max(0, (deadline - Date.now()) / 1000));
      const query = { timeout, lane: options.lane };
      const asked = Date.now();
      const job = await this.#http.json<api.Job>("GET", path, { query, wait: timeout, signal: options.signal });
      if (isFinal(job.status)) return job;
      if (Date.now() >= deadline) throw new WaitTimeoutError(job);
      // A server that is stopping, or that allows no waits, responds at once.
      if (Date.now() - asked < PAUSE) await pause(PAUSE, options.signal);
    }
  }

  /**
   * Follows the events of a job until it ends. A broken stream is resumed where it stopped. The last event contains the
   * job. A job that ended before `lastEventId` has no events.
   */
  async *events(id: string, options: EventsOptions = {}): AsyncGenerator<FollowedEvent, void> {
    let last = options.lastEventId ?? 0;
    for (let quiet = 0; ; quiet += 1) {
      const headers = { accept: "text/event-stream", "last-event-id": String(last) };
      const call = { query: { lane: options.lane }, headers, signal: options.signal };
      const response = await this.#http.stream("GET", `/v1/jobs/${encodeURIComponent(id)}/events`, call);
      if (response.status === 204 || !response.body) return;
      try {
        for await (const event of readEvents(response.body)) {
          const parsed = JSON.parse(event.data) as api.JobEvent;
          last = Number(event.id ?? last);
          quiet = 0;
          yield { id: last, ...parsed };
          if (isFinal(parsed.status) && parsed.job) return;
        }
      } catch (error) {
        options.signal?.throwIfAborted();
        if (!(error instanceof TypeError)) throw error;
      }
      // The stream broke, or was open for an hour.
      await pause(Math.min(5_000, PAUSE * 2 ** quiet), options.signal);
    }
  }

  /** Gets a job with its timeline and result. */
  async get(id: string, options: JobOptions = {}): Promise<api.Job> {
    return await this.#job(id, "", options);
  }

  /** Cancels a job that has not ended. */
  async cancel(id: string, options: JobOptions = {}): Promise<api.Job> {
    const { lane, signal } = options;
    const done = (problem: ProblemError) => problem.status === 409 && problem.problem.jobStatus === "cancelled";
    const call: Call = { query: { lane }, signal, done };
    const job = await this.#http.json<api.Job | undefined>("DELETE", `/v1/jobs/${encodeURIComponent(id)}`, call);
    return job ?? (await this.get(id, options));
  }

  /** Explains why a job waits, and until when. */
  async why(id: string, options: JobOptions = {}): Promise<api.Why> {
    return await this.#job(id, "/why", options);
  }

  /** Returns a page of the jobs that match, newest first; pass its `cursor` for the next page. */
  async search(filter: api.JobFilter = {}, options: CallOptions = {}): Promise<api.JobList> {
    return await this.#http.json("GET", "/v1/jobs", { query: filter, ...options });
  }

  /**
   * Acquires a permit for one call to an upstream, which the caller makes itself. Throws {@link QuotaExceededError} if it is
   * denied, after `wait` if given (`"5s"`). Settle the lease with the result of the call.
   */
  async acquire(upstream: string, request: api.AcquireRequest = {}, options: CallOptions = {}): Promise<Lease> {
    const path = `/v1/limits/${encodeURIComponent(upstream)}/acquire`;
    const call: Call = { body: request, repeat: "refusals", final: [429], ...options };
    if (request.wait) call.wait = MAX_WAIT;
    return new Lease(this.#http, await this.#http.json<api.Acquired>("POST", path, call));
  }

  /** Makes any other call of the API, with the same retries; see the OpenAPI document. A response that is not JSON is returned as text. */
  async call<T>(method: string, path: string, call: Pick<Call, "query" | "body" | "signal"> = {}): Promise<T> {
    return await this.#http.jsonOrText<T>(method, path, { ...call, repeat: method === "GET" ? "always" : "refusals" });
  }

  async #job<T>(id: string, what: string, { lane, signal }: JobOptions): Promise<T> {
    return await this.#http.json<T>("GET", `/v1/jobs/${encodeURIComponent(id)}${what}`, { query: { lane }, signal });
  }
}

/** A permit for one call. It expires after the server's `workers.lease`. */
export class Lease {
  readonly id: string;
  /** The name of the upstream's key to use, if it has `keys`. */
  readonly key: string | undefined;
  /** What is left of the tightest limit; `undefined` if there is none. */
  readonly remaining: number | undefined;
  readonly #http: Http;

  /** @internal */
  constructor(http: Http, acquired: api.Acquired) {
    this.#http = http;
    this.id = acquired.leaseId;
    this.key = acquired.key ?? undefined;
    this.remaining = acquired.remaining ?? undefined;
  }

  /** Reports the result of the call and ends the lease. */
  async settle(status: CallResult, report: Omit<api.SettleRequest, "status"> = {}): Promise<void> {
    const path = `/v1/limits/leases/${encodeURIComponent(this.id)}/settle`;
    await this.#http.json("POST", path, { body: { status, ...report }, done: isGone });
  }

  /** Extends it to `workers.lease` from now. */
  async extend(): Promise<void> {
    await this.#http.json("POST", `/v1/limits/leases/${encodeURIComponent(this.id)}/extend`);
  }
}

/** Jobs that failed permanently. */
export class DeadLetters {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

  /** Returns a page of the letters that match; pass its `cursor` for the next page. */
  async list(filter: api.DeadLetterQuery = {}, options: CallOptions = {}): Promise<api.DeadLetterList> {
    return await this.#http.json("GET", "/v1/dead-letters", { query: filter, ...options });
  }

  /** Gets a dead letter with its content. */
  async get(id: string, options: CallOptions = {}): Promise<api.DeadLetter> {
    return await this.#http.json("GET", `/v1/dead-letters/${encodeURIComponent(id)}`, { ...options });
  }

  /**
   * Enqueues it again; `patch` is a merge patch (RFC 7396) over its `originalData`. It is not repeated after a lost
   * connection: that could create a second job.
   */
  async replay(id: string, patch?: object, options: CallOptions = {}): Promise<api.Accepted> {
    const call: Call = { repeat: "refusals", ...options };
    if (patch) Object.assign(call, { body: patch, contentType: "application/merge-patch+json" });
    return await this.#http.json("POST", `/v1/dead-letters/${encodeURIComponent(id)}/replay`, call);
  }

  /** Enqueues all letters that match again, as their lanes have room. Follow the progress with {@link DeadLetters.replayed}. */
  async replayAll(filter: api.DeadLetterFilter = {}, options: CallOptions = {}): Promise<api.BulkReplay> {
    return await this.#http.json("POST", "/v1/dead-letters/replay", { body: { filter }, repeat: "refusals", ...options });
  }

  /** Gets the progress of a bulk replay. */
  async replayed(replayId: string, options: CallOptions = {}): Promise<api.BulkReplay> {
    return await this.#http.json("GET", `/v1/dead-letters/replays/${encodeURIComponent(replayId)}`, { ...options });
  }

  /** Deletes it permanently and returns it; `undefined` if it was deleted but the response was lost. */
  async discard(id: string, options: CallOptions = {}): Promise<api.DeadLetter | undefined> {
    return await this.#http.json("DELETE", `/v1/dead-letters/${encodeURIComponent(id)}`, { done: isGone, ...options });
  }
}

function isGone(problem: ProblemError): boolean {
  return problem.status === 404;
}
