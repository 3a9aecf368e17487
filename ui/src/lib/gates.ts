/** Gates as locks: how full, how tight, and which one of an upstream matters most. */

import type { Gate, Held, Lane, Upstream } from './types';

/** `ok` open, `wait` closed for a time that is known beforehand, `bad` closed because of errors. */
export type Tone = 'ok' | 'wait' | 'bad' | 'idle';

export interface Lock {
  gate: Gate;
  /** What is left of the limit, 0…1: the water in the lock. Undefined where the gate measures nothing. */
  left: number | undefined;
  tone: Tone;
}

const ERRORS = new Set(['circuit_open', 'cooldown', 'upstream_retry_after']);

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

export function lock(gate: Gate): Lock {
  const tone = gate.open ? 'ok' : ERRORS.has(gate.reason) ? 'bad' : 'wait';
  return { gate, left: left(gate), tone };
}

/** A gate that limits how much passes; breakers and cooldowns only say whether. */
const measures = (gate: Gate): boolean => !ERRORS.has(gate.reason) && left(gate) !== undefined;

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

/** How the whole upstream stands: the worst of its gates. */
export function tone(upstream: Upstream): Tone {
  const tones = upstream.gates.map((gate) => lock(gate).tone);
  if (tones.includes('bad')) return 'bad';
  if (tones.includes('wait')) return 'wait';
  return upstream.requestsLastMinute === 0 && upstream.inFlight === 0 ? 'idle' : 'ok';
}

/** Jobs that wait in a lane, scheduled ones and retries included. */
export function waiting(lane: Lane): number {
  return lane.queued.high + lane.queued.normal + lane.queued.low + lane.pending;
}

/** How the lane stands. A hold that opens within a second counts as flowing. */
export function laneTone(lane: Lane, now: number): Tone {
  if (lane.paused) return 'wait';
  const { held } = lane;
  if (held && waiting(lane) > 0 && (held.until == null || Date.parse(held.until) - now > 1000)) {
    return ERRORS.has(held.reason) || held.reason === 'rules_gone' || held.reason === 'store_unavailable' ? 'bad' : 'wait';
  }
  return lane.rates.started === 0 && waiting(lane) === 0 && lane.processing === 0 ? 'idle' : 'ok';
}
