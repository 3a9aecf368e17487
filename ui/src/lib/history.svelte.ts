import { untrack } from 'svelte';
import { get, type Query } from './api';
import { clock } from './clock.svelte';
import { covering, RANGES } from './history';
import { live } from './live.svelte';
import { Resource } from './resource.svelte';
import { router } from './router.svelte';
import type { History } from './types';

/** Points are of a minute; the one under way is worth asking for a few times. */
const LEAST_REFRESH_MS = 15_000;
/** Less than this share of a chart cannot be seen. */
const SEEN = 1 / 240;

/** The least time between two loads of a history of this range. */
export const refreshMs = (minutes: number): number => Math.max(LEAST_REFRESH_MS, minutes * 60_000 * SEEN);

/** The range in the address, else the smallest that covers the life of the server. */
export function chosenMinutes(): number {
  const minutes = Number(router.route.query.minutes);
  if ((RANGES as readonly number[]).includes(minutes)) return minutes;
  const startedAt = live.fleet?.startedAt;
  return startedAt ? covering(clock.now - Date.parse(startedAt)) : 60;
}

interface Wanted extends Query {
  minutes: number;
}

/** The history of something, kept current while the component that asks is shown; nothing is asked while `query` is false. */
export function watchHistory<P>(query: () => Wanted | false): Resource<History<P>> {
  const history = new Resource<History<P>>(() => get<History<P>>('/v1/history', query() || {}));
  /** What had been heard when it was last asked for. */
  let heard = 0;
  $effect(() => {
    if (!query()) return;
    heard = untrack(() => live.changes);
    void history.load();
    return () => history.dispose();
  });
  // Where nothing happens there is nothing new to draw.
  $effect(() => {
    if (live.changes === heard) return;
    heard = live.changes;
    const wanted = untrack(query);
    if (wanted) history.refresh(refreshMs(wanted.minutes));
  });
  return history;
}
