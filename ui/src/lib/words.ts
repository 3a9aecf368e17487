/** What gates say, in the reader's language. */

import { both, count, duration, rate, utc, wholeSeconds } from './format';
import type { Messages } from './i18n/en';
import { pace, type Pace } from './pace';
import type { Gate, JobStatus, Owner } from './types';

/** The level of a gate: `58 / 60 per min`. */
export function gateLevel(m: Messages, gate: Gate): string {
  const { level, limit } = gate;
  switch (gate.reason) {
    case 'window':
      return limit === null ? count(level) : m.gate.window(count(level), count(limit));
    case 'rate_limit':
      return limit === null ? count(level) : m.gate.rate_limit(count(level), count(limit));
    case 'concurrency':
      return limit === null ? count(level) : m.gate.concurrency(count(level), count(limit));
    case 'pace':
      return m.gate.pace(duration(level));
    case 'circuit_open':
      if (!gate.open) return gate.until ? m.gate.breakerOpen : m.gate.probing;
      return level === 0 || limit === null ? m.gate.noFailures : m.gate.failuresOf(count(level), count(limit));
    case 'cooldown':
      return gate.open ? m.gate.cool : `${m.gate.hot}, ${m.gate.errors(level, count(level))}`;
    case 'upstream_retry_after':
      return gate.open ? m.gate.open : m.gate.asked;
    default:
      return gate.open ? m.gate.open : m.gate.closed;
  }
}

/** Whose a gate is: `Tenant acme`, `bureau`, `dict PER_CLIENT 18d49564…`. */
export function owner(m: Messages, { upstream, tenant, policy, scope }: Owner): string {
  if (tenant !== undefined) return `${m.words.tenant} ${tenant}`;
  if (!upstream) return m.words.lane;
  const hash = scope && scope !== 'upstream' ? `${scope.slice(0, 8)}…` : undefined;
  return [upstream, policy, hash].filter((word) => word !== undefined).join(' ');
}

/** The same where there is little room: a gate that errors have closed is only named. */
export function lockLevel(m: Messages, gate: Gate): string {
  const counts = gate.reason === 'window' || gate.reason === 'rate_limit' || gate.reason === 'concurrency';
  return gate.open || counts ? gateLevel(m, gate) : m.reason[gate.reason];
}

/** Up to this, a countdown shows seconds. */
const LONG_SEC = 600;

/** When a closed gate opens, or a breaker lets a probe through. A slot is free when a call ends, which nobody knows beforehand. */
export function opens(m: Messages, gate: Pick<Gate, 'reason'> & { open?: boolean; until?: string | null }, now: number): string {
  if (gate.open) return m.gate.open;
  if (!gate.until || gate.reason === 'concurrency') return m.gate.closed;
  const left = Math.max(0, Math.ceil((Date.parse(gate.until) - now) / 1000));
  const say = gate.reason === 'circuit_open' ? m.gate.probeIn : m.gate.opensIn;
  return say(wholeSeconds(left > LONG_SEC ? Math.ceil(left / 60) * 60 : left));
}

export const paceText = (m: Messages, perSecond: number, adaptive: boolean): string =>
  adaptive ? m.overview.adaptive(rate(perSecond)) : rate(perSecond);

/** How fast something goes on, and when it will be done. */
export function speedWords(m: Messages, { perSecond, leftSec }: Pace): string[] {
  if (perSecond === 0) return [];
  return [rate(perSecond), ...(leftSec === undefined ? [] : [m.letters.ready(m.common.in(wholeSeconds(leftSec)))])];
}

/** How far something is that has gone on for some seconds: `2,000 of 10,000 · 800/s · done in 10 s`. */
export function progressText(m: Messages, done: number, total: number, seconds: number): string {
  return [m.letters.progress(count(done), count(total)), ...speedWords(m, pace(done, total - done, seconds))].join(' · ');
}

/** A filter, one part after the other: `Tenant: acme`. Times are local, as in the fields of a filter, and in UTC. */
export function filterWords(m: Messages, filter: Record<string, string>, now: number): string[] {
  const { id, lane, tenant, status, code } = m.words;
  const names: Record<string, string> = { id, lane, tenant, status, code, since: m.jobs.since, until: m.jobs.until };
  const value = (name: string, text: string) => {
    if (name === 'status') return m.jobStatus[text as JobStatus] ?? text;
    if (name !== 'since' && name !== 'until') return text;
    return m.jobs.sinceRanges[text as keyof typeof m.jobs.sinceRanges] ?? (utc(text) ? both(text, now) : text);
  };
  return Object.entries(filter).map(([name, text]) => `${names[name] ?? name}: ${value(name, text)}`);
}
