/**
 * What the server says, live: one stream per tab feeds every page.
 *
 * The browser reconnects by itself when the connection breaks, and resumes where it was. When the server refuses the stream
 * (it is stopping, has too many streams, or is older than the call), the plain calls are asked instead until it accepts one.
 */

import { get } from './api';
import { clock } from './clock.svelte';
import { EMPTY, EVENT_TYPES, reduce, type Event, type Snapshot, type State } from './reduce';
import { session } from './session.svelte';
import type { Alerts, Fleet, Lane, Status, Upstream } from './types';

/** Between two attempts to open a stream that was refused. */
const RETRY_MS = 5000;

export type Connection = 'connecting' | 'live' | 'lost' | 'polling';

class Live {
  #state = $state.raw<State>(EMPTY);
  connection = $state<Connection>('connecting');
  /** Whether anything was heard yet. */
  ready = $state(false);
  #source: EventSource | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

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

  start(): void {
    this.stop();
    const source = new EventSource('/v1/events');
    this.#source = source;
    for (const type of EVENT_TYPES) {
      source.addEventListener(type, (message) => this.#hear({ type, data: JSON.parse(message.data) } as Event));
    }
    source.onopen = () => {
      this.connection = 'live';
    };
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) void this.#refused();
      else this.connection = 'lost';
    };
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = undefined;
    this.#state = EMPTY;
    this.ready = false;
    this.connection = 'connecting';
  }

  /** Takes over what an action answered, before the stream says so. */
  hear(event: Event): void {
    this.#hear(event);
  }

  #hear(event: Event): void {
    if (event.type === 'snapshot') clock.set(event.data.at);
    this.#state = reduce(this.#state, event);
    this.ready = true;
  }

  async #refused(): Promise<void> {
    const source = this.#source;
    const heard = await this.#ask();
    if (source !== this.#source) return;
    this.connection = heard ? 'polling' : 'lost';
    if (!heard) await session.load();
    if (source !== this.#source || session.signedOut) return;
    this.#timer = setTimeout(() => this.#reopen(), RETRY_MS);
  }

  #reopen(): void {
    const { connection } = this;
    const known = this.#state;
    const { ready } = this;
    this.start();
    this.#state = known;
    this.ready = ready;
    this.connection = connection;
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
