/** Calls that act on everything that matches a filter, a thousand at a time. */

import type { Work } from './actions.svelte';
import { del, get, type Query } from './api';
import type { Search } from './paged.svelte';

interface Part {
  matched: number;
  cancelled?: number;
  purged?: number;
  cursor?: string;
}

/** Asks until the server has no more. */
async function* parts(url: string, query: Query, signal?: AbortSignal): AsyncGenerator<Part> {
  let cursor: string | undefined;
  do {
    const part: Part = await del<Part>(url, { ...query, cursor }, signal);
    yield part;
    cursor = part.cursor;
  } while (cursor);
}

/** How many it would be. */
export async function preview(url: string, query: Query, { signal, reached }: Work): Promise<number> {
  let found = 0;
  for await (const part of parts(url, { ...query, dryRun: true }, signal)) reached((found += part.matched));
  return found;
}

export interface Done {
  count: number;
  /** Whether it was stopped before the end. */
  stopped: boolean;
}

/** Does it. A part that has begun is always finished: otherwise nobody would know what it has done. */
export async function act(url: string, query: Query, { signal, reached }: Work): Promise<Done> {
  let count = 0;
  for await (const part of parts(url, query)) {
    reached((count += part.cancelled ?? part.purged ?? 0));
    if (signal.aborted && part.cursor) return { count, stopped: true };
  }
  return { count, stopped: false };
}

interface Bounds {
  signal?: AbortSignal;
  /** The most calls. */
  calls?: number;
  /** Takes the cursor after each call that leaves something to look for. */
  reached?: (cursor: string | undefined) => void;
}

/** Pages of a list, put together up to `most`; pages may be short or empty and still have a cursor. */
export async function collect<T, P extends { cursor?: string | number }>(
  url: string,
  query: Query,
  items: (page: P) => T[],
  most: number,
  { signal, calls = Number.POSITIVE_INFINITY, reached = () => {} }: Bounds = {},
): Promise<{ items: T[]; cursor: string | undefined }> {
  const found: T[] = [];
  let cursor = query.cursor === undefined ? undefined : String(query.cursor);
  let left = calls;
  do {
    const page: P = await get<P>(url, { ...query, cursor }, signal);
    found.push(...items(page));
    cursor = page.cursor === undefined || page.cursor === null ? undefined : String(page.cursor);
    reached(found.length < most ? cursor : undefined);
  } while (cursor && found.length < most && --left > 0);
  return { items: found, cursor };
}

/** Items that are gathered before they are shown: a page of the server may be shorter. */
const PAGE = 50;
/** Calls before the reader is asked whether to search on; the server looks at up to 10,000 jobs in each. */
const CALLS = 8;

/** A page of a list, as far as it is found within a bounded number of calls. */
export const find = <T, P extends { cursor?: string }>(
  url: string,
  query: Query,
  items: (page: P) => T[],
  { cursor, signal, reached }: Search,
): Promise<{ items: T[]; cursor: string | undefined }> =>
  collect(url, { ...query, cursor }, items, PAGE, { signal, reached, calls: CALLS });

/** When the job at a cursor was accepted: pages of jobs are newest first, and their cursors begin with it. */
export function cursorTime(cursor: string): number | undefined {
  const [, millis] = /^(\d+)\./.exec(cursor) ?? [];
  return millis === undefined ? undefined : Number(millis);
}
