/**
 * What the server says, live: one stream per browser feeds every page of every tab. A shared worker has it; where there is none,
 * each tab has its own. While the server refuses the stream, the plain calls are asked instead.
 */

import { get } from './api';
import { clock } from './clock.svelte';
import { EMPTY, reduce, type Event, type Snapshot, type State } from './reduce';
import { session } from './session.svelte';
import type { Heard, Told } from './shared';
import { Stream } from './stream';
import type { Alerts, Fleet, Lane, Status, Upstream } from './types';

export type Connection = 'connecting' | 'live' | 'lost' | 'polling';

/** Messages from a tab to the owner of the stream. */
type Line = (told: Told) => void;

/** The worker of all tabs. One that cannot be started is replaced by a stream of the tab's own. */
function sharedLine(hear: (heard: Heard) => void, failed: () => void): Line {
  const worker = new SharedWorker(new URL('./shared.worker.ts', import.meta.url), { type: 'module', name: 'eclusa' });
  worker.onerror = failed;
  worker.port.onmessage = ({ data }: MessageEvent<Heard>) => hear(data);
  return (told) => worker.port.postMessage(told);
}

function ownLine(hear: (heard: Heard) => void): Line {
  const stream = new Stream(hear);
  return ({ tell }) => {
    if (tell === 'join') stream.open();
    else if (tell === 'leave') stream.close();
  };
}

class Live {
  #state = $state.raw<State>(EMPTY);
  connection = $state<Connection>('connecting');
  /** Whether anything was heard yet. */
  ready = $state(false);
  /** Counts what was heard: to notice that something has changed. */
  changes = $state(0);
  /** Whose view is followed; undefined while nothing is. */
  #who: string | undefined;
  #line: Line | undefined;

  constructor() {
    // A tab that is closed, or kept aside to come back to, follows nothing.
    addEventListener('pagehide', () => this.#who !== undefined && this.#line?.({ tell: 'leave' }));
    addEventListener('pageshow', ({ persisted }) => {
      if (persisted && this.#who !== undefined) this.#line?.({ tell: 'join', who: this.#who });
    });
  }

  get lanes() {
    return this.#state.lanes;
  }
  get upstreams() {
    return this.#state.upstreams;
  }
  get alerts() {
    return this.#state.alerts;
  }
  get fleet() {
    return this.#state.fleet;
  }
  get status() {
    return this.#state.status;
  }
  get jobs() {
    return this.#state.jobs;
  }

  lane(name: string): Lane | undefined {
    return this.lanes.find((lane) => lane.name === name);
  }
  upstream(name: string): Upstream | undefined {
    return this.upstreams.find((upstream) => upstream.name === name);
  }

  /** Follows what `who` may see. */
  start(who: string): void {
    this.#who = who;
    this.#line ??= this.#connect();
    this.#line({ tell: 'join', who });
  }

  #connect(): Line {
    const hear = (heard: Heard) => this.#heard(heard);
    if (typeof SharedWorker === 'undefined') return ownLine(hear);
    return sharedLine(hear, () => {
      this.#line = ownLine(hear);
      if (this.#who !== undefined) this.start(this.#who);
    });
  }

  stop(): void {
    this.#who = undefined;
    this.#line?.({ tell: 'leave' });
    this.#state = EMPTY;
    this.ready = false;
    this.connection = 'connecting';
  }

  /** The session has ended: the other tabs must notice too. */
  signedOut(): void {
    this.#line?.({ tell: 'renew' });
  }

  /** Takes over what an action answered, before the stream says so. */
  hear(event: Event): void {
    this.#hear(event);
  }

  #heard(heard: Heard): void {
    if (this.#who === undefined) return;
    switch (heard.say) {
      case 'event':
        return this.#hear(heard.event);
      case 'state':
        if (heard.state.at) clock.set(heard.state.at, heard.heardAt);
        this.#state = heard.state;
        this.ready = true;
        return;
      case 'live':
      case 'lost':
        this.connection = heard.say;
        return;
      case 'refused':
        return void this.#refused();
      case 'other':
        return void session.load();
    }
  }

  #hear(event: Event): void {
    if (event.type === 'snapshot') clock.set(event.data.at);
    this.#state = reduce(this.#state, event);
    this.changes++;
    this.ready = true;
  }

  async #refused(): Promise<void> {
    const who = this.#who;
    const heard = await this.#ask();
    if (who !== this.#who) return;
    this.connection = heard ? 'polling' : 'lost';
    if (!heard) await session.load();
  }

  /** The snapshot by plain calls; what a call refuses stays as it was. Whether any answered. */
  async #ask(): Promise<boolean> {
    const [lanes, upstreams, alerts, fleet, status] = await Promise.allSettled([
      get<Lane[]>('/v1/lanes'),
      get<Upstream[]>('/v1/upstreams'),
      get<Alerts>('/v1/alerts'),
      get<Fleet>('/v1/health'),
      get<Status>('/v1/status'),
    ]);
    const data: Snapshot = { at: new Date().toISOString() };
    if (lanes.status === 'fulfilled') data.lanes = lanes.value;
    if (upstreams.status === 'fulfilled') data.upstreams = upstreams.value;
    if (alerts.status === 'fulfilled') data.alerts = alerts.value;
    if (fleet.status === 'fulfilled') data.fleet = fleet.value;
    if (status.status === 'fulfilled') data.status = status.value;
    const any = Object.keys(data).length > 1;
    if (any) this.#hear({ type: 'snapshot', data });
    return any;
  }
}

export const live = new Live();
