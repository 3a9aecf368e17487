/** How events of `GET /v1/events` change what the pages know. Pure, so that it can be tested. */

import type { Alerts, Fleet, JobEvent, Lane, Status, Upstream } from './types';

/** Job events that are remembered. */
export const RING = 300;

export interface State {
  /** When the server made the snapshot; absent until the first. */
  at?: string;
  lanes: Lane[];
  upstreams: Upstream[];
  alerts?: Alerts;
  fleet?: Fleet;
  status?: Status;
  /** The newest first. */
  jobs: JobEvent[];
}

export const EMPTY: State = { lanes: [], upstreams: [], jobs: [] };

type Change<T> = T | { name: string; removed: true };

export interface Snapshot {
  at: string;
  lanes?: Lane[];
  upstreams?: Upstream[];
  alerts?: Alerts;
  fleet?: Fleet;
  status?: Status;
}

export type Event =
  | { type: 'snapshot'; data: Snapshot }
  | { type: 'lanes'; data: Change<Lane>[] }
  | { type: 'upstreams'; data: Change<Upstream>[] }
  | { type: 'alerts'; data: Alerts }
  | { type: 'fleet'; data: Fleet }
  | { type: 'status'; data: Status }
  | { type: 'jobs'; data: JobEvent[] }
  | { type: 'gap'; data: object };

export const EVENT_TYPES = ['snapshot', 'lanes', 'upstreams', 'alerts', 'fleet', 'status', 'jobs', 'gap'] as const;

/** The list with the changed ones replaced in place, new ones at the end and removed ones left out. */
function merged<T extends { name: string }>(known: T[], changes: Change<T>[]): T[] {
  const byName = new Map(changes.map((change) => [change.name, change]));
  const kept: T[] = [];
  for (const item of known) {
    const change = byName.get(item.name);
    byName.delete(item.name);
    if (change === undefined) kept.push(item);
    else if (!('removed' in change)) kept.push(change);
  }
  for (const change of byName.values()) if (!('removed' in change)) kept.push(change);
  return kept;
}

export function reduce(state: State, event: Event): State {
  switch (event.type) {
    case 'snapshot':
      // Only the topics that were asked for are in it.
      return { ...state, ...event.data };
    case 'lanes':
      return { ...state, lanes: merged(state.lanes, event.data) };
    case 'upstreams':
      return { ...state, upstreams: merged(state.upstreams, event.data) };
    case 'alerts':
      return { ...state, alerts: event.data };
    case 'fleet':
      return { ...state, fleet: event.data };
    case 'status':
      return { ...state, status: event.data };
    case 'jobs':
      return { ...state, jobs: [...event.data].reverse().concat(state.jobs).slice(0, RING) };
    case 'gap':
      // What was missed is unknown, so the remembered events are no longer "the last ones".
      return { ...state, jobs: [] };
  }
}
