import { randomUUID } from "node:crypto";
import { WaitTimeoutError, type ProblemError } from "./errors.js";
import { Http, pause, type Call, type Options } from "./http.js";
import { readEvents } from "./sse.js";
import type * as api from "./types.js";

/** Seconds of one long poll, below what servers usually allow. */
const POLL = 20;
/** Seconds that `acquire` may wait at the most; the server's `max_wait` is usually shorter. */
const MAX_WAIT = 600;
/** Milliseconds between two looks at a server that does not wait. */
const PAUSE = 200;

export interface CallOptions {
  signal?: AbortSignal;
}
export interface JobOptions extends CallOptions {
  /** The lane of the job, where other lanes have one with the same id. */
  lane?: string;
}
export interface EnqueueOptions extends CallOptions {
  /** The same key again is the same job again. Without it, and without `id` in the job, one is made up. */
  idempotencyKey?: string;
  /** Seconds to wait for the end of the job; as much as the server allows, if it allows less. */
  wait?: number;
}
export interface WaitOptions extends JobOptions {
  /** Milliseconds until {@link WaitTimeoutError}. Default: for ever. */
  timeout?: number;
}
export interface EventsOptions extends JobOptions {
  /** Where to go on: the `id` of the last event seen. */
  lastEventId?: number;
}
/** One line of a job's timeline; `id` is its number. */
export type FollowedEvent = api.JobEvent & { id: number };

/** What a worker reports of a call it made. */
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
   * job. The answer is what was accepted; the job itself if `wait` was given and it ended in time; or an answer of the cache.
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

  /** Enqueues up to 1000 jobs, with an answer each: what was accepted, an answer of the cache, or a problem. */
  async enqueueBatch(lane: string, jobs: api.JobRequest[], options: CallOptions = {}): Promise<api.BatchAnswer[]> {
    const body = jobs.map((job) => (job.id ? job : { ...job, id: randomUUID() }));
    return await this.#http.json("POST", `/v1/lanes/${encodeURIComponent(lane)}/jobs/batch`, { body, ...options });
  }

  /** Enqueues a job and waits for its end. An answer of the cache is a completed job without an id. */
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

  /** The job once it has ended, however it did. */
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
      // A server that is stopping, or that allows no waits, answers at once.
      if (Date.now() - asked < PAUSE) await pause(PAUSE, options.signal);
    }
  }

  /**
   * What happens to a job, as it happens, to its end. A stream that breaks is taken up again where it was. The last event has
   * the job. A job that ended before `lastEventId` has no events.
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
          const told = JSON.parse(event.data) as api.JobEvent;
          last = Number(event.id ?? last);
          quiet = 0;
          yield { id: last, ...told };
          if (isFinal(told.status) && told.job) return;
        }
      } catch (error) {
        options.signal?.throwIfAborted();
        if (!(error instanceof TypeError)) throw error;
      }
      // The stream broke, or was open for an hour.
      await pause(Math.min(5_000, PAUSE * 2 ** quiet), options.signal);
    }
  }

  /** A job with its history and result. */
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

  /** Why a job waits, and until when. */
  async why(id: string, options: JobOptions = {}): Promise<api.Why> {
    return await this.#job(id, "/why", options);
  }

  /** A page of the jobs that fit, the newest first; go on with its `cursor`. */
  async search(filter: api.JobFilter = {}, options: CallOptions = {}): Promise<api.JobList> {
    return await this.#http.json("GET", "/v1/jobs", { query: filter, ...options });
  }

  /**
   * A permit for one call to an upstream that the caller makes itself. Throws {@link QuotaExceededError} if there is none, after
   * `wait` if that is given (`"5s"`). Settle the lease with how the call went.
   */
  async acquire(upstream: string, request: api.AcquireRequest = {}, options: CallOptions = {}): Promise<Lease> {
    const path = `/v1/limits/${encodeURIComponent(upstream)}/acquire`;
    const call: Call = { body: request, repeat: "refusals", final: [429], ...options };
    if (request.wait) call.wait = MAX_WAIT;
    return new Lease(this.#http, await this.#http.json<api.Acquired>("POST", path, call));
  }

  /** Any other call of the API, with the same retries; see the OpenAPI document. An answer that is not JSON comes as text. */
  async call<T>(method: string, path: string, call: Pick<Call, "query" | "body" | "signal"> = {}): Promise<T> {
    return await this.#http.jsonOrText<T>(method, path, { ...call, repeat: method === "GET" ? "always" : "refusals" });
  }

  async #job<T>(id: string, what: string, { lane, signal }: JobOptions): Promise<T> {
    return await this.#http.json<T>("GET", `/v1/jobs/${encodeURIComponent(id)}${what}`, { query: { lane }, signal });
  }
}

/** A permit for one call. It ends by itself after the server's `workers.lease`. */
export class Lease {
  readonly id: string;
  /** The name of the upstream's key to use, where it has several. */
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

  /** Reports how the call went and ends the lease. */
  async settle(status: CallResult, report: Omit<api.SettleRequest, "status"> = {}): Promise<void> {
    const path = `/v1/limits/leases/${encodeURIComponent(this.id)}/settle`;
    await this.#http.json("POST", path, { body: { status, ...report }, done: isGone });
  }

  /** Makes it last for `workers.lease` from now. */
  async extend(): Promise<void> {
    await this.#http.json("POST", `/v1/limits/leases/${encodeURIComponent(this.id)}/extend`);
  }
}

/** Jobs that failed for good. */
export class DeadLetters {
  readonly #http: Http;

  /** @internal */
  constructor(http: Http) {
    this.#http = http;
  }

  /** A page of those that fit; go on with its `cursor`. */
  async list(filter: api.DeadLetterQuery = {}, options: CallOptions = {}): Promise<api.DeadLetterList> {
    return await this.#http.json("GET", "/v1/dead-letters", { query: filter, ...options });
  }

  /** One dead letter with what was to be sent. */
  async get(id: string, options: CallOptions = {}): Promise<api.DeadLetter> {
    return await this.#http.json("GET", `/v1/dead-letters/${encodeURIComponent(id)}`, { ...options });
  }

  /**
   * Enqueues it again; `patch` is a merge patch (RFC 7396) over its `originalData`. After a lost connection it is not sent again:
   * that could make a second job.
   */
  async replay(id: string, patch?: object, options: CallOptions = {}): Promise<api.Accepted> {
    const call: Call = { repeat: "refusals", ...options };
    if (patch) Object.assign(call, { body: patch, contentType: "application/merge-patch+json" });
    return await this.#http.json("POST", `/v1/dead-letters/${encodeURIComponent(id)}/replay`, call);
  }

  /** Enqueues all that fit again, as their lanes have room. Follow it with {@link DeadLetters.replayed}. */
  async replayAll(filter: api.DeadLetterFilter = {}, options: CallOptions = {}): Promise<api.BulkReplay> {
    return await this.#http.json("POST", "/v1/dead-letters/replay", { body: { filter }, repeat: "refusals", ...options });
  }

  /** How far a replay of many is. */
  async replayed(replayId: string, options: CallOptions = {}): Promise<api.BulkReplay> {
    return await this.#http.json("GET", `/v1/dead-letters/replays/${encodeURIComponent(replayId)}`, { ...options });
  }

  /** Removes it for good. The answer is what was removed; `undefined` if the answer that had it was lost. */
  async discard(id: string, options: CallOptions = {}): Promise<api.DeadLetter | undefined> {
    return await this.#http.json("DELETE", `/v1/dead-letters/${encodeURIComponent(id)}`, { done: isGone, ...options });
  }
}

function isGone(problem: ProblemError): boolean {
  return problem.status === 404;
}
