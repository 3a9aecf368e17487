/** Hash routes: `#/lanes/score`, `#/jobs?tenant=acme`. The server knows one page, so links can be shared. */

export const PAGES = [
  'overview',
  'lanes',
  'upstreams',
  'jobs',
  'tenants',
  'dead-letters',
  'policies',
  'fleet',
  'alerts',
] as const;
export type Page = (typeof PAGES)[number];

export interface Route {
  page: Page | 'unknown';
  /** The second part: a lane, an upstream, a job, a dead letter. */
  id: string | null;
  query: Record<string, string>;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export function parse(hash: string): Route {
  const [path = '', search = ''] = hash.replace(/^#/, '').split(/\?(.*)/s);
  const parts = path.split('/').filter(Boolean);
  const query = Object.fromEntries(new URLSearchParams(search));
  const first = parts[0] ?? 'overview';
  const page = (PAGES as readonly string[]).includes(first) && parts.length <= 2 ? (first as Page) : 'unknown';
  return { page, id: parts[1] === undefined ? null : decoded(parts[1]), query };
}

export function href(page: Page, id?: string | null, query: Record<string, string | null | undefined> = {}): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) params.set(name, value);
  const search = params.size > 0 ? `?${params}` : '';
  const path = page === 'overview' ? '/' : `/${page}`;
  return `#${path}${id ? `/${encodeURIComponent(id)}` : ''}${search}`;
}
