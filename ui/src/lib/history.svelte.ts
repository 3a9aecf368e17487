import { get, type Query } from './api';
import { clock } from './clock.svelte';
import { covering, RANGES } from './history';
import { live } from './live.svelte';
import { Resource } from './resource.svelte';
import { router } from './router.svelte';
import type { History } from './types';

/** Points are of a minute; the one under way is worth asking for a few times. */
const REFRESH_MS = 15_000;

/** The range in the address, else the smallest that covers the life of the server. */
export function chosenMinutes(): number {
  const minutes = Number(router.route.query.minutes);
  if ((RANGES as readonly number[]).includes(minutes)) return minutes;
  const startedAt = live.fleet?.startedAt;
  return startedAt ? covering(clock.now - Date.parse(startedAt)) : 60;
}

/** The history of something, kept current while the component that asks is shown; nothing is asked while `query` is false. */
export function watchHistory<P>(query: () => Query | false): Resource<History<P>> {
  const history = new Resource<History<P>>(() => get<History<P>>('/v1/history', query() || {}));
  $effect(() => {
    if (!query()) return;
    void history.load();
    const timer = setInterval(() => history.refresh(0), REFRESH_MS);
    return () => {
      clearInterval(timer);
      history.dispose();
    };
  });
  return history;
}
