/** The dead letters that match a filter: the list, how many there are by code and by tenant, and the replays. */

import { untrack } from 'svelte';
import { get, search } from './api';
import { find } from './bulk';
import { live } from './live.svelte';
import { Paged, type Filter } from './paged.svelte';
import { Resource } from './resource.svelte';
import type { DeadLetter, Replay, Stats } from './types';

/** Groups that are shown; the others are counted together. */
const GROUPS = 8;
/** Replays are asked how far they are at most this often. */
const PROGRESS_MS = 1000;

export class Letters {
  readonly list: Paged<DeadLetter>;
  readonly byCode: Resource<Stats>;
  readonly byTenant: Resource<Stats>;
  readonly total: Resource<Stats>;
  readonly #replays = new Resource(() => get<{ replays: Replay[] }>('/v1/dead-letters/replays'));

  /** The newest first. */
  readonly replays: Replay[] = $derived(this.#replays.data?.replays ?? []);
  /** Whether one is under way. */
  readonly replaying: boolean = $derived(this.replays.some(({ status }) => status === 'running' || status === 'counting'));
  /** How far they were when they were last seen. */
  #progress = '';
  /** Letters of all lanes. */
  readonly #known: number = $derived(live.lanes.reduce((sum, lane) => sum + lane.deadLetters, 0));

  /** Follows `filter` while the component that makes it is shown; `changed` is called when it has changed. */
  constructor(
    private readonly filter: () => Filter,
    changed: () => void,
  ) {
    const stats = (by: string, limit: number) =>
      new Resource(() => get<Stats>('/v1/dead-letters/stats', { ...filter(), [by]: undefined, by, limit }));
    this.byCode = stats('code', GROUPS);
    this.byTenant = stats('tenant', GROUPS);
    this.total = new Resource(() => get<Stats>('/v1/dead-letters/stats', { ...filter(), by: 'lane', limit: 1 }));
    this.list = new Paged((from) =>
      find<DeadLetter, { deadLetters: DeadLetter[]; cursor?: string }>(
        '/v1/dead-letters',
        filter(),
        (page) => page.deadLetters,
        from,
      ),
    );
    $effect(() => this.#followFilter(changed));
    $effect(() => this.#followCount());
    $effect(() => this.#followReplays());
    $effect(() => this.#followProgress());
    $effect(() => this.#followEnd());
    $effect(() => () => [this.list, ...this.#counts, this.#replays].forEach((one) => one.dispose()));
  }

  get #counts() {
    return [this.byCode, this.byTenant, this.total];
  }

  load = (): void => {
    for (const one of [this.list, ...this.#counts, this.#replays]) void one.load();
  };

  #followFilter(changed: () => void): void {
    void search(this.filter());
    untrack(() => {
      this.list.reset();
      changed();
      this.load();
    });
  }

  /** More or fewer letters than before: counts again. The list stays as it is under the reader's eyes unless it was empty. */
  #followCount(): void {
    void this.#known;
    untrack(() => {
      for (const one of this.#counts) one.refresh(3000);
      if (this.list.ready && this.list.items.length === 0 && !this.list.hasMore) void this.list.load();
    });
  }

  /** What replays do changes lanes, and the stream says so. */
  #followReplays(): void {
    void live.lanes;
    if (this.replaying) untrack(() => this.#replays.refresh(PROGRESS_MS));
  }

  /** Some steps change no lane: counting, and the end. They follow soon after others. */
  #followProgress(): void {
    const progress = this.replays.map(({ status, replayed, failed }) => [status, replayed, failed]).join(' ');
    const moves = progress !== this.#progress || this.replays.some(({ status }) => status === 'counting');
    this.#progress = progress;
    if (this.replaying && moves) untrack(() => this.#replays.refresh(2 * PROGRESS_MS));
  }

  /** What has been replayed is gone from the list. */
  #followEnd(): (() => void) | undefined {
    return this.replaying ? () => untrack(this.load) : undefined;
  }
}
