import { ConnectionError, problemOf } from "./errors.js";

/** How to reach the server. */
export interface Options {
  /** Where it listens; else `ECLUSA_URL`, else `http://127.0.0.1:8080`. */
  url?: string;
  /** A key of its config; else `ECLUSA_KEY`. */
  key?: string;
  /** How often a request is repeated after a lost connection, 429 or 503. Default 4. */
  retries?: number;
  /** Milliseconds that one attempt may take, besides what it asks the server to wait. Default 30,000. */
  timeout?: number;
  /** The longest time between two attempts, in milliseconds, whatever `Retry-After` says. Default 30,000. */
  maxRetryDelay?: number;
  /** In place of the global `fetch`. */
  fetch?: typeof fetch;
}

/** What a request may be repeated after. */
export type Repeat = "always" | "refusals" | "never";

export interface Call {
  query?: object;
  headers?: Record<string, string>;
  body?: unknown;
  contentType?: string;
  /** Seconds that the server is asked to wait. */
  wait?: number;
  /** `always`: also after a lost connection, when the server may have acted on it. `refusals`: only after 429 and 503. */
  repeat?: Repeat;
  /** Statuses that are not repeated. */
  final?: number[];
  signal?: AbortSignal | undefined;
}

/** Sends requests, with retries. */
export class Http {
  readonly #url: string;
  readonly #key: string | undefined;
  readonly #retries: number;
  readonly #timeout: number;
  readonly #maxDelay: number;
  readonly #fetch: typeof fetch;

  constructor(options: Options) {
    this.#url = (options.url ?? process.env["ECLUSA_URL"] ?? "http://127.0.0.1:8080").replace(/\/+$/, "");
    this.#key = options.key ?? process.env["ECLUSA_KEY"];
    this.#retries = options.retries ?? 4;
    this.#timeout = options.timeout ?? 30_000;
    this.#maxDelay = options.maxRetryDelay ?? 30_000;
    this.#fetch = options.fetch ?? fetch;
  }

  /** The JSON of a successful answer. */
  async json<T>(method: string, path: string, call: Call = {}): Promise<T> {
    const response = await this.send(method, path, call);
    return (await response.json()) as T;
  }

  /** A successful answer; anything else is thrown as an error. */
  async send(method: string, path: string, call: Call = {}): Promise<Response> {
    const repeat = call.repeat ?? "always";
    for (let attempt = 1; ; attempt += 1) {
      let delay = Math.min(this.#maxDelay, 100 * 2 ** (attempt - 1)) * (0.75 + Math.random() / 2);
      let error: Error;
      try {
        const response = await this.#once(method, path, call);
        if (response.ok) return response;
        const problem = await problemOf(response);
        const refused = response.status === 429 || response.status === 503;
        if (!refused || repeat === "never" || call.final?.includes(response.status)) throw problem;
        if (problem.retryAfter !== undefined) delay = Math.min(this.#maxDelay, problem.retryAfter * 1000);
        error = problem;
      } catch (thrown) {
        if (!(thrown instanceof ConnectionError) || repeat !== "always") throw thrown;
        error = thrown;
      }
      if (attempt > this.#retries) throw error;
      await pause(delay, call.signal);
    }
  }

  /** One attempt, without a limit on how long the body may take. */
  async #once(method: string, path: string, call: Call): Promise<Response> {
    const headers: Record<string, string> = { accept: "application/json", ...call.headers };
    if (this.#key) headers["authorization"] = `Bearer ${this.#key}`;
    const init: RequestInit = { method, headers, redirect: "error" };
    if (call.body !== undefined) {
      headers["content-type"] = call.contentType ?? "application/json";
      init.body = JSON.stringify(call.body);
    }
    const timer = new AbortController();
    const timeout = setTimeout(() => timer.abort(), this.#timeout + (call.wait ?? 0) * 1000);
    init.signal = call.signal ? AbortSignal.any([timer.signal, call.signal]) : timer.signal;
    try {
      return await this.#fetch(`${this.#url}${path}${queryOf(call.query)}`, init);
    } catch (cause) {
      call.signal?.throwIfAborted();
      const why = timer.signal.aborted ? "no answer in time" : String((cause as Error).cause ?? cause);
      throw new ConnectionError(`${method} ${path}: ${why}`, { cause });
    } finally {
      clearTimeout(timeout);
    }
  }
}

function queryOf(query: object | undefined): string {
  const pairs = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null);
  const texts = pairs.map(([name, value]): [string, string] => [name, String(value)]);
  const text = new URLSearchParams(texts).toString();
  return text && `?${text}`;
}

/** Waits; throws the signal's reason if it is aborted. */
export async function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const aborted = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, ms);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}
