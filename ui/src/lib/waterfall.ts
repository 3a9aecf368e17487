/** A job's timeline as bars: what it waited for and what each call took. */

import type { Job, Reason, TimelineEntry } from './types';

export type BarKind = 'queued' | 'backoff' | 'chain' | 'call' | 'awaiting';

export interface Bar {
  kind: BarKind;
  from: number;
  /** Absent while it goes on. */
  to: number | undefined;
  upstream?: string;
  /** The number of the call, from 1. */
  call?: number;
  /** Of a wait that is over: what held the lane. */
  reason?: Reason;
  outcome?: 'ok' | 'failed' | 'lost' | 'ended';
  code?: string;
  detail?: string;
}

export interface Waterfall {
  from: number;
  to: number;
  bars: Bar[];
  /** When it expires, if that lies within twice what is shown. */
  expires: number | undefined;
}

/** Up to this it did not wait: so long it takes to go from one step to the next. */
const NO_WAIT_MS = 2;

const FINAL = new Set(['completed', 'failed', 'dropped', 'cancelled']);

/** Whether the entry ends the job: `failed` with an upstream is one failed call. */
function isFinal(entry: TimelineEntry, last: boolean): boolean {
  return FINAL.has(entry.event) && (entry.event !== 'failed' || (last && entry.upstream === undefined));
}

export function waterfall(job: Pick<Job, 'timeline' | 'expiresAt' | 'status'>, now: number): Waterfall {
  const bars: Bar[] = [];
  let open: Bar | undefined;
  let calls = 0;

  const close = (at: number, outcome?: Bar['outcome'], entry?: TimelineEntry) => {
    if (!open) return;
    open.to = Math.max(open.from, at);
    if (outcome && (open.kind === 'call' || open.kind === 'awaiting')) open.outcome = outcome;
    if (entry?.code) open.code = entry.code;
    if (entry?.detail && entry.event === 'failed') open.detail = entry.detail;
    if (open.to - open.from > NO_WAIT_MS || open.kind === 'call' || open.kind === 'awaiting') bars.push(open);
    open = undefined;
  };
  const begin = (bar: Bar) => {
    open = bar;
  };

  /** Splits the wait that ends at `at` into what held the lane, and the rest. */
  const waited = (entry: TimelineEntry, at: number) => {
    if (!entry.waited || !open || open.kind === 'call' || open.kind === 'awaiting') return;
    const { kind } = open;
    const since = Math.max(open.from, Date.parse(entry.waited.since));
    const until = Math.min(at, Date.parse(entry.waited.until));
    if (!(since < until)) return;
    close(since);
    begin({ kind, from: since, to: undefined, reason: entry.waited.reason });
    close(until);
    begin({ kind, from: until, to: undefined });
  };

  job.timeline.forEach((entry, i) => {
    const at = Date.parse(entry.at);
    const last = i === job.timeline.length - 1;
    if (isFinal(entry, last)) {
      close(at, entry.event === 'completed' ? 'ok' : entry.event === 'failed' ? 'failed' : 'ended', entry);
      return;
    }
    switch (entry.event) {
      case 'accepted':
        begin({ kind: 'queued', from: at, to: undefined });
        break;
      case 'started':
        waited(entry, at);
        close(at);
        begin({ kind: 'call', from: at, to: undefined, call: ++calls, ...named(entry) });
        break;
      case 'failed':
        close(at, 'failed', entry);
        begin({ kind: 'queued', from: at, to: undefined });
        break;
      case 'retry_scheduled': {
        close(at, 'failed');
        const until = Date.parse(entry.detail ?? '');
        begin({ kind: 'backoff', from: at, to: undefined });
        if (Number.isFinite(until) && until <= nextStart(job.timeline, i, now)) {
          close(until);
          begin({ kind: 'queued', from: until, to: undefined });
        }
        break;
      }
      case 'waits_for_rest_of_chain':
        close(at, 'failed');
        begin({ kind: 'chain', from: at, to: undefined });
        break;
      case 'taken_up':
        close(at, 'lost');
        begin({ kind: 'queued', from: at, to: undefined });
        break;
      case 'released':
        close(at, 'ended');
        begin({ kind: 'queued', from: at, to: undefined });
        break;
      case 'awaiting':
        close(at, 'ok');
        begin({ kind: 'awaiting', from: at, to: undefined, ...named(entry) });
        break;
      case 'served':
        close(at);
        break;
    }
  });
  if (open) bars.push(open);

  const first = job.timeline[0];
  const from = first ? Date.parse(first.at) : now;
  const ended = job.timeline.at(-1);
  const to = FINAL.has(job.status) && ended ? Date.parse(ended.at) : now;
  const end = Math.max(to, from + 1);
  const expires = job.expiresAt ? Date.parse(job.expiresAt) : undefined;
  return { from, to: end, bars, expires: expires !== undefined && expires <= end + (end - from) ? expires : undefined };
}

const named = (entry: TimelineEntry) => (entry.upstream === undefined ? {} : { upstream: entry.upstream });

function nextStart(timeline: TimelineEntry[], after: number, now: number): number {
  const next = timeline[after + 1];
  return next ? Date.parse(next.at) : now;
}
