/** Gates as locks: how full, how tight, and which one of an upstream matters most. */

import type { Gate, Held, Lane, Reason, Upstream } from './types';

/** `ok` open, `wait` closed for a time that is known beforehand, `bad` closed because of errors. */
export type Tone = 'ok' | 'wait' | 'bad' | 'idle';

export interface Lock {
  gate: Gate;
  /** What is left of the limit, 0…1: the water in the lock. Undefined where the gate measures nothing. */
  left: number | undefined;
  tone: Tone;
}

const ERRORS = new Set(['circuit_open', 'cooldown', 'upstream_retry_after']);

/** Whether a gate with this reason closes because of errors. */
export const isError = (reason: string): boolean => ERRORS.has(reason);

/** Share of the limit that is left. */
export function left(gate: Gate): number | undefined {
  const { level, limit, reason } = gate;
  if (limit === null || limit <= 0) return undefined;
  const clamp = (share: number) => Math.min(1, Math.max(0, share));
  switch (reason) {
    case 'rate_limit':
      return clamp(level / limit);
    case 'window':
    case 'concurrency':
    case 'circuit_open':
      return clamp(1 - level / limit);
    default:
      return undefined;
  }
}

/** Whether the reason to wait is a gate, not other jobs or a time that the job itself has. */
export function isGate(reason: Reason): boolean {
  return isError(reason) || ['pace', 'rate_limit', 'window', 'concurrency'].includes(reason);
}

/** How a closed gate with this reason looks. */
export const closedTone = (reason: Reason): Tone => (isError(reason) ? 'bad' : 'wait');

export function lock(gate: Gate): Lock {
  return { gate, left: left(gate), tone: gate.open ? 'ok' : closedTone(gate.reason) };
}

/** A gate that limits how much passes; breakers and cooldowns only say whether. */
const measures = (gate: Gate): boolean => !isError(gate.reason) && left(gate) !== undefined;

/**
 * The gate of an upstream to show where there is room for one: the one that holds the lane, else the closed one that opens last,
 * else the tightest of those that count, else any.
 */
export function decisive(gates: Gate[], held?: Held | null): Lock | undefined {
  const byReason = held && gates.find((gate) => gate.reason === held.reason);
  if (byReason && !byReason.open) return lock(byReason);
  const closed = gates.filter((gate) => !gate.open);
  if (closed.length > 0) {
    const last = closed.reduce((a, b) => (opensAt(b) > opensAt(a) ? b : a));
    return lock(last);
  }
  const counted = gates.filter(measures);
  if (counted.length > 0) return lock(counted.reduce((a, b) => ((left(b) ?? 1) < (left(a) ?? 1) ? b : a)));
  const other = gates.find((gate) => gate.reason === 'pace') ?? gates[0];
  return other && lock(other);
}

function opensAt(gate: Gate): number {
  return gate.until === null ? Number.POSITIVE_INFINITY : Date.parse(gate.until);
}

/** The gates that a call has to pass: those of the upstream and, if it has several keys, those of the key with the most room. */
export function gatesOf(upstream: Upstream): Gate[] {
  const pools = (upstream.keys ?? []).map((key) => ({ gates: key.gates, tightest: decisive(key.gates) }));
  const room = (pool: (typeof pools)[number]) => (pool.tightest?.gate.open === false ? -1 : (pool.tightest?.left ?? 1));
  const best = pools.reduce<(typeof pools)[number] | undefined>((a, b) => (a && room(a) >= room(b) ? a : b), undefined);
  return [...upstream.gates, ...(best?.gates ?? [])];
}

/** The state of the whole upstream: the worst of its gates. */
export function tone(upstream: Upstream): Tone {
  const tones = gatesOf(upstream).map((gate) => lock(gate).tone);
  if (tones.includes('bad')) return 'bad';
  if (tones.includes('wait')) return 'wait';
  return upstream.requestsLastMinute === 0 && upstream.inFlight === 0 ? 'idle' : 'ok';
}

/** Jobs that wait in a lane, scheduled ones and retries included. */
export function waiting(lane: Lane): number {
  return lane.queued.high + lane.queued.normal + lane.queued.low + lane.pending;
}

/** Calls per second: of jobs, and of requests that are answered directly. */
export function passing(lane: Lane): number {
  return lane.rates.started + lane.rates.answered;
}

/** A limit that opens sooner than this is drawn open, and counts as flowing: it would only flicker. */
const MOMENT_MS = 1000;

/**
 * Whether a closed gate holds for longer than a moment. When a slot becomes free is not known, whatever was estimated; and what
 * errors have closed is shown to the end.
 */
export function holds(gate: { reason: string; until?: string | null }, now: number): boolean {
  const known = gate.until != null && gate.reason !== 'concurrency' && !isError(gate.reason);
  return !known || Date.parse(gate.until ?? '') - now > MOMENT_MS;
}

/** The state of the lane, as its locks are drawn. */
export function laneTone(lane: Lane, now: number): Tone {
  if (lane.paused) return 'wait';
  const { held } = lane;
  if (held && waiting(lane) > 0 && holds(held, now)) {
    return isError(held.reason) || held.reason === 'rules_gone' || held.reason === 'store_unavailable' ? 'bad' : 'wait';
  }
  return passing(lane) === 0 && waiting(lane) === 0 && lane.processing === 0 ? 'idle' : 'ok';
}
