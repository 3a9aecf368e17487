import { ConnectionError, ProblemError, problemOf } from "./errors.js";

/** How to reach the server. */
export interface Options {
  /** Its URL; else `ECLUSA_URL`, else `http://127.0.0.1:8080`. */
  url?: string;
  /** A key from its config; else `ECLUSA_KEY`. */
  key?: string;
  /** Maximum retries after a lost connection, 429 or 503. Default 4. */
  retries?: number;
  /** Milliseconds that one attempt may take, in addition to the wait requested from the server. Default 30,000. */
  timeout?: number;
  /** Maximum milliseconds between two attempts, even if `Retry-After` is longer. Default 30,000. */
  maxRetryDelay?: number;
  /** Used instead of the global `fetch`. */
  fetch?: typeof fetch;
}

/** After which failures a request may be repeated. */
export type Repeat = "always" | "refusals" | "never";

export interface Call {
  query?: object;
  headers?: Record<string, string>;
  body?: unknown;
  contentType?: string;
  /** Seconds of waiting requested from the server. */
  wait?: number;
  /** `always`: also after a lost connection, when the server may have acted on it. `refusals`: only after 429 and 503. */
  repeat?: Repeat;
  /** Statuses that are not repeated. */
  final?: number[];
  /** Whether a problem after a lost connection shows that the lost request succeeded; the result is then `undefined`. */
  done?: (problem: ProblemError) => boolean;
  signal?: AbortSignal | undefined;
}

/** Reads the result from a successful response. */
type Read<T> = (response: Response) => Promise<T>;

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

  /** The JSON of a successful response; otherwise throws. */
  async json<T>(method: string, path: string, call: Call = {}): Promise<T> {
    return await this.#send(method, path, call, async (response) => (await response.json()) as T);
  }

  /** Like `json`, but a response that is not JSON is returned as text. */
  async jsonOrText<T>(method: string, path: string, call: Call): Promise<T> {
    const read = (response: Response) => (isJson(response) ? response.json() : response.text()) as Promise<T>;
    return await this.#send(method, path, call, read);
  }

  /** A successful response with an unread body; reading it has no time limit. */
  async stream(method: string, path: string, call: Call = {}): Promise<Response> {
    return await this.#send(method, path, call, async (response) => response);
  }

  async #send<T>(method: string, path: string, call: Call, read: Read<T>): Promise<T> {
    let lost = false;
    for (let attempt = 1; ; attempt += 1) {
      let delay = Math.min(this.#maxDelay, 100 * 2 ** (attempt - 1)) * (0.75 + Math.random() / 2);
      try {
        return await this.#once(method, path, call, read);
      } catch (error) {
        if (lost && error instanceof ProblemError && call.done?.(error)) return undefined as T;
        lost ||= error instanceof ConnectionError;
        if (attempt > this.#retries || !mayRepeat(error, call)) throw error;
        if (error instanceof ProblemError && error.retryAfter !== undefined) {
          delay = Math.min(this.#maxDelay, error.retryAfter * 1000);
        }
      }
      await pause(delay, call.signal);
    }
  }

  /** Makes one attempt. Its time limit includes `read`. */
  async #once<T>(method: string, path: string, call: Call, read: Read<T>): Promise<T> {
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
      const response = await this.#fetch(`${this.#url}${path}${queryOf(call.query)}`, init);
      if (!response.ok) throw await problemOf(response);
      return await read(response);
    } catch (cause) {
      if (cause instanceof ProblemError) throw cause;
      call.signal?.throwIfAborted();
      const why = timer.signal.aborted ? "no response in time" : String((cause as Error).cause ?? cause);
      throw new ConnectionError(`${method} ${path}: ${why}`, { cause });
    } finally {
      clearTimeout(timeout);
    }
  }
}

function mayRepeat(error: unknown, { repeat = "always", final = [] }: Call): boolean {
  if (error instanceof ConnectionError) return repeat === "always";
  if (!(error instanceof ProblemError) || repeat === "never") return false;
  return (error.status === 429 || error.status === 503) && !final.includes(error.status);
}

function isJson(response: Response): boolean {
  return /[/+]json\b/.test(response.headers.get("content-type") ?? "");
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
