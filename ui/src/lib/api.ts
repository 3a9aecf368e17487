/** Calls to the server. Errors are problem details (RFC 9457); whatever else goes wrong is made to look like one. */

export class ApiError extends Error {
  constructor(
    /** HTTP status; 0 if the server did not answer. */
    readonly status: number,
    /** The last word of the problem's type: `not-found`, `invalid`, … */
    readonly kind: string,
    /** The server's sentence. */
    readonly detail: string,
    readonly fields: { field: string; problem: string }[] = [],
  ) {
    super(detail);
  }
}

export type Query = Record<string, string | number | boolean | null | undefined>;

/** Called on every 401, so that the sign-in page appears. */
let onUnauthorized: () => void = () => {};

export function whenUnauthorized(handler: () => void): void {
  onUnauthorized = handler;
}

/** `?a=1&b=2` of what is set, or nothing. */
export function search(query: Query = {}): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== '') params.set(name, String(value));
  }
  const text = params.toString();
  return text && `?${text}`;
}

/** A path of which each `${part}` is encoded. */
export function path(parts: TemplateStringsArray, ...values: string[]): string {
  return parts.reduce((whole, part, i) => whole + part + (i < values.length ? encodeURIComponent(values[i] ?? '') : ''), '');
}

async function problem(answer: Response): Promise<ApiError> {
  const body: { type?: string; title?: string; detail?: string; errors?: { field: string; problem: string }[] } = await answer
    .json()
    .catch(() => ({}));
  const kind = body.type?.split(':').pop() ?? 'unknown';
  return new ApiError(answer.status, kind, body.detail ?? body.title ?? answer.statusText, body.errors ?? []);
}

/** An aborted call throws what its signal was aborted with. */
export async function call<T>(method: string, url: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(url, {
      method,
      credentials: 'same-origin',
      headers: body === undefined ? {} : { 'Content-Type': 'application/json' },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal ? { signal } : {}),
    });
  } catch {
    signal?.throwIfAborted();
    throw new ApiError(0, 'unreachable', 'The server does not answer.');
  }
  if (!answer.ok) {
    if (answer.status === 401 && !url.startsWith('/v1/session')) onUnauthorized();
    throw await problem(answer);
  }
  if (answer.status === 204) return undefined as T;
  return (await answer.json()) as T;
}

export const get = <T>(url: string, query?: Query, signal?: AbortSignal): Promise<T> =>
  call<T>('GET', url + search(query), undefined, signal);
export const post = <T>(url: string, body?: unknown, signal?: AbortSignal): Promise<T> => call<T>('POST', url, body, signal);
export const del = <T>(url: string, query?: Query, signal?: AbortSignal): Promise<T> =>
  call<T>('DELETE', url + search(query), undefined, signal);
