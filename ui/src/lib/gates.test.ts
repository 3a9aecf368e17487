import { describe, expect, test } from 'vitest';
import { decisive, gatesOf, holds, laneTone, left, lock, tone, waiting } from './gates';
import type { Gate, Lane, Reason, Upstream } from './types';

const gate = (reason: Reason, level: number, limit: number | null, until?: string | null): Gate => ({
  reason,
  level,
  limit,
  open: until === undefined,
  until: until ?? null,
});
const soon = '2026-11-17T17:00:10Z';
const later = '2026-11-17T17:00:40Z';
const NOW = Date.parse('2026-11-17T17:00:00Z');

describe('the water in a lock', () => {
  test('is what is left: tokens, places, slots', () => {
    expect(left(gate('rate_limit', 9, 12))).toBeCloseTo(0.75);
    expect(left(gate('window', 45, 60))).toBeCloseTo(0.25);
    expect(left(gate('concurrency', 10, 10))).toBe(0);
  });

  test('a debt is an empty lock, not a negative one', () => expect(left(gate('rate_limit', -18, 100))).toBe(0));

  test('gates that count nothing have no level', () => {
    expect(left(gate('cooldown', 2, null))).toBeUndefined();
    expect(left(gate('pace', 700, 60_000))).toBeUndefined();
  });

  test('errors and limits close a gate in different colours', () => {
    expect(lock(gate('window', 60, 60, soon)).tone).toBe('wait');
    expect(lock(gate('circuit_open', 5, 5, soon)).tone).toBe('bad');
    expect(lock(gate('window', 1, 60)).tone).toBe('ok');
  });
});

describe('the gate that is shown for an upstream', () => {
  const breaker = gate('circuit_open', 0, 5);
  const tight = gate('window', 58, 60);
  const loose = gate('concurrency', 1, 10);

  test('the one that holds the lane', () => {
    const window = gate('window', 60, 60, soon);
    const cooldown = gate('cooldown', 2, null, later);
    expect(decisive([breaker, window, cooldown], { reason: 'window', upstream: 'bureau' })?.gate).toBe(window);
  });

  test('else the closed one that opens last', () => {
    const cooldown = gate('cooldown', 2, null, later);
    expect(decisive([gate('window', 60, 60, soon), cooldown])?.gate).toBe(cooldown);
  });

  test('a closed one without a time opens last of all', () => {
    const probing = gate('circuit_open', 5, 5, null);
    expect(decisive([gate('cooldown', 2, null, later), probing])?.gate).toBe(probing);
  });

  test('else the tightest that counts', () => expect(decisive([breaker, loose, tight])?.gate).toBe(tight));
  test('else any, or none', () => {
    expect(decisive([breaker])?.gate).toBe(breaker);
    expect(decisive([])).toBeUndefined();
  });
});

describe('an upstream with several keys', () => {
  const pool = (...windows: Gate[]): Upstream => ({
    name: 'fast',
    inFlight: 1,
    requestsLastMinute: 7,
    gates: [],
    keys: windows.map((window, i) => ({ name: `${i}`, inFlight: 0, requestsLastMinute: 0, gates: [window] })),
  });
  const full = gate('window', 60, 60, soon);
  const some = gate('window', 30, 60);
  const much = gate('window', 1, 60);

  test('lets through what the key with the most room does', () => {
    expect(gatesOf(pool(some, much, full))).toEqual([much]);
    expect(tone(pool(full, some))).toBe('ok');
  });
  test('is closed if all of them are', () => expect(tone(pool(full, full))).toBe('wait'));
  test('without keys has only its own gates', () => expect(gatesOf({ ...pool(), gates: [some] })).toEqual([some]));
});

describe('a lane', () => {
  const lane = (more: Partial<Lane>): Lane =>
    ({
      name: 'score',
      paused: false,
      queued: { high: 1, normal: 2, low: 3 },
      pending: 4,
      processing: 0,
      rates: { started: 1, answered: 0 },
      ...more,
    }) as Lane;

  test('scheduled jobs and retries wait too', () => expect(waiting(lane({}))).toBe(10));

  test('a hold that opens within a second counts as flowing', () => {
    expect(laneTone(lane({ held: { reason: 'window', until: '2026-11-17T17:00:00.900Z' } }), NOW)).toBe('ok');
    expect(laneTone(lane({ held: { reason: 'window', until: soon } }), NOW)).toBe('wait');
    expect(laneTone(lane({ held: { reason: 'circuit_open', until: soon } }), NOW)).toBe('bad');
    expect(laneTone(lane({ held: { reason: 'rules_gone' } }), NOW)).toBe('bad');
  });

  test('a lane whose slots are taken waits, whatever the estimate', () => {
    expect(laneTone(lane({ held: { reason: 'concurrency', until: '2026-11-17T17:00:00.100Z' } }), NOW)).toBe('wait');
    expect(holds({ reason: 'window', until: '2026-11-17T17:00:00.100Z' }, NOW)).toBe(false);
    expect(holds({ reason: 'window', until: null }, NOW)).toBe(true);
    expect(holds({ reason: 'cooldown', until: '2026-11-17T17:00:00.100Z' }, NOW)).toBe(true);
  });

  test('requests that are answered directly flow too', () => {
    const direct = { queued: { high: 0, normal: 0, low: 0 }, pending: 0, rates: { started: 0, answered: 2 } as Lane['rates'] };
    expect(laneTone(lane(direct), NOW)).toBe('ok');
  });

  test('an empty lane that is held is idle or flows', () => {
    const empty = { queued: { high: 0, normal: 0, low: 0 }, pending: 0, held: { reason: 'window' as const, until: soon } };
    expect(laneTone(lane(empty), NOW)).toBe('ok');
    expect(laneTone(lane({ ...empty, rates: { started: 0, answered: 0 } as Lane['rates'] }), NOW)).toBe('idle');
  });
});
