/** A job's timeline as bars: what it waited for and what each call took. */

import { isFinal, type Job, type Reason, type TimelineEntry } from './types';

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

/** Whether an upstream has the job; else it waits. */
export const isSent = ({ kind }: Pick<Bar, 'kind'>): boolean => kind === 'call' || kind === 'awaiting';

/** What an event does to the state of a job. */
interface Step {
  /** How the call ended, if it was one that was under way. */
  outcome?: NonNullable<Bar['outcome']>;
  /** The state that begins; absent if the job has ended, or is about to. */
  next?: BarKind;
}

const STEPS: Readonly<Record<string, Step>> = {
  accepted: { next: 'queued' },
  started: { next: 'call' },
  failed: { outcome: 'failed', next: 'queued' },
  retry_scheduled: { outcome: 'failed', next: 'backoff' },
  waits_for_rest_of_chain: { outcome: 'failed', next: 'chain' },
  taken_up: { outcome: 'lost', next: 'queued' },
  released: { outcome: 'ended', next: 'queued' },
  awaiting: { outcome: 'ok', next: 'awaiting' },
  served: {},
};

/** Of events that end the job. */
const ENDS: Readonly<Record<string, Step>> = {
  completed: { outcome: 'ok' },
  failed: { outcome: 'failed' },
  dropped: { outcome: 'ended' },
  cancelled: { outcome: 'ended' },
};

/** `failed` is one failed call, unless it comes last and names no upstream: then the job has failed. */
function stepOf(entry: TimelineEntry, isLast: boolean): Step | undefined {
  const ends = isFinal(entry.event) && (entry.event !== 'failed' || (isLast && entry.upstream === undefined));
  return (ends ? ENDS : STEPS)[entry.event];
}

/** A state of the job, between the entry that began it and the one that ended it. */
interface Phase {
  kind: BarKind;
  begin: TimelineEntry;
  end?: { entry: TimelineEntry; step: Step };
}

/** The states that the job has been in, one after the other. */
function* phases(timeline: TimelineEntry[]): Generator<Phase> {
  let open: Phase | undefined;
  for (const [i, entry] of timeline.entries()) {
    const step = stepOf(entry, i === timeline.length - 1);
    if (!step) continue;
    if (open) yield { ...open, end: { entry, step } };
    open = step.next && { kind: step.next, begin: entry };
  }
  if (open) yield open;
}

/** The bars of a state: one, or several where a wait had several causes. */
function barsOf(phase: Phase, now: number): Bar[] {
  const { kind, begin, end } = phase;
  const from = Date.parse(begin.at);
  const whole: Bar = { kind, from, to: end && Math.max(from, Date.parse(end.entry.at)) };
  if (isSent(whole)) {
    const outcome = end?.step.outcome;
    return [
      {
        ...whole,
        ...(begin.upstream === undefined ? {} : { upstream: begin.upstream }),
        ...(outcome ? { outcome } : {}),
        ...whyEnded(end?.entry),
      },
    ];
  }
  const [backoff, wait] = splitBackoff(whole, Date.parse(begin.detail ?? ''), now);
  const waits = [...backoff, ...aroundHold({ ...wait, ...whyEnded(end?.entry) }, end?.entry.waited)];
  return waits.filter(({ from, to }) => to === undefined || to - from > NO_WAIT_MS);
}

/** What the entry says of the failure that ended a state. */
function whyEnded(entry: TimelineEntry | undefined): Pick<Bar, 'code' | 'detail'> {
  if (!entry || !isFinal(entry.event)) return {};
  return {
    ...(entry.code ? { code: entry.code } : {}),
    ...(entry.detail && entry.event === 'failed' ? { detail: entry.detail } : {}),
  };
}

/** A backoff lasts as long as it was scheduled to; what follows is a wait in the queue. */
function splitBackoff(wait: Bar, scheduled: number, now: number): [backoff: Bar[], wait: Bar] {
  if (wait.kind !== 'backoff' || !(scheduled <= (wait.to ?? now))) return [[], wait];
  const over = Math.max(wait.from, scheduled);
  return [[{ ...wait, to: over }], { ...wait, kind: 'queued', from: over }];
}

/** A wait before, during and after what held the lane. */
function aroundHold(wait: Bar, held: TimelineEntry['waited']): Bar[] {
  if (!held || wait.to === undefined) return [wait];
  const since = Math.max(wait.from, Date.parse(held.since));
  const until = Math.min(wait.to, Date.parse(held.until));
  if (!(since < until)) return [wait];
  return [
    { ...wait, to: since },
    { ...wait, from: since, to: until, reason: held.reason },
    { ...wait, from: until },
  ];
}

export function waterfall(job: Pick<Job, 'timeline' | 'expiresAt' | 'status'>, now: number): Waterfall {
  let calls = 0;
  const bars = [...phases(job.timeline)]
    .flatMap((phase) => barsOf(phase, now))
    .map((bar) => (bar.kind === 'call' ? { ...bar, call: ++calls } : bar));
  return { bars, ...extent(job, now) };
}

/** From when to when it is shown, and whether the end of its TTL is. */
function extent(job: Pick<Job, 'timeline' | 'expiresAt' | 'status'>, now: number): Omit<Waterfall, 'bars'> {
  const [first, last] = [job.timeline[0], job.timeline.at(-1)];
  const from = first ? Date.parse(first.at) : now;
  const to = Math.max(isFinal(job.status) && last ? Date.parse(last.at) : now, from + 1);
  const expires = job.expiresAt ? Date.parse(job.expiresAt) : undefined;
  return { from, to, expires: expires !== undefined && expires <= to + (to - from) ? expires : undefined };
}
