/** Calls that act on everything that matches a filter, a thousand at a time. */

import { del, get, type Query } from './api';

interface Part {
  matched: number;
  cancelled?: number;
  purged?: number;
  cursor?: string;
}

/** Goes on until the server has no more; says after each part how many it was so far. */
async function all(
  url: string,
  query: Query,
  progress: (done: number) => void,
  counted: (part: Part) => number,
): Promise<number> {
  let done = 0;
  let cursor: string | undefined;
  do {
    const part: Part = await del<Part>(url, { ...query, cursor });
    done += counted(part);
    progress(done);
    cursor = part.cursor;
  } while (cursor);
  return done;
}

/** How many it would be. */
export const preview = (url: string, query: Query, progress: (found: number) => void = () => {}): Promise<number> =>
  all(url, { ...query, dryRun: true }, progress, (part) => part.matched);

export const act = (url: string, query: Query, progress: (done: number) => void): Promise<number> =>
  all(url, query, progress, (part) => part.cancelled ?? part.purged ?? 0);

/** Pages of a list, put together up to `most`; pages may be short or empty and still have a cursor. */
export async function collect<T, P extends { cursor?: string | number }>(
  url: string,
  query: Query,
  items: (page: P) => T[],
  most: number,
): Promise<{ items: T[]; cursor: string | undefined }> {
  const found: T[] = [];
  let cursor = query.cursor === undefined ? undefined : String(query.cursor);
  do {
    const page: P = await get<P>(url, { ...query, cursor });
    found.push(...items(page));
    cursor = page.cursor === undefined || page.cursor === null ? undefined : String(page.cursor);
  } while (cursor && found.length < most);
  return { items: found, cursor };
}
