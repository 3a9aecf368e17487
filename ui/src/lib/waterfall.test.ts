import { describe, expect, test } from 'vitest';
import type { Job, TimelineEntry } from './types';
import { waterfall } from './waterfall';

const T = Date.parse('2026-11-17T17:00:00.000Z');
const at = (ms: number) => new Date(T + ms).toISOString();
const entry = (ms: number, event: string, more: Partial<TimelineEntry> = {}): TimelineEntry => ({ at: at(ms), event, ...more });
const job = (status: Job['status'], timeline: TimelineEntry[], expiresAt: string | null = null) => ({
  status,
  timeline,
  expiresAt,
});
const short = (fall: ReturnType<typeof waterfall>) =>
  fall.bars.map((bar) => [bar.kind, bar.from - T, bar.to === undefined ? undefined : bar.to - T, bar.outcome]);

describe('the waterfall of a job', () => {
  test('waits, calls along the chain, a backoff and an answer', () => {
    const fall = waterfall(
      job('completed', [
        entry(0, 'accepted'),
        entry(500, 'started', { upstream: 'moody' }),
        entry(900, 'failed', { upstream: 'moody', code: '503', detail: 'moody: 503' }),
        entry(900, 'started', { upstream: 'flaky' }),
        entry(1000, 'failed', { upstream: 'flaky', code: 'timeout' }),
        entry(1000, 'retry_scheduled', { detail: at(1200) }),
        entry(1900, 'started', { upstream: 'flaky' }),
        entry(2400, 'completed'),
      ]),
      T + 99_000,
    );
    expect(short(fall)).toEqual([
      ['queued', 0, 500, undefined],
      ['call', 500, 900, 'failed'],
      ['call', 900, 1000, 'failed'],
      ['backoff', 1000, 1200, undefined],
      ['queued', 1200, 1900, undefined],
      ['call', 1900, 2400, 'ok'],
    ]);
    expect(fall.bars.filter((bar) => bar.kind === 'call').map((bar) => [bar.call, bar.upstream, bar.code])).toEqual([
      [1, 'moody', '503'],
      [2, 'flaky', 'timeout'],
      [3, 'flaky', undefined],
    ]);
    expect([fall.from - T, fall.to - T]).toEqual([0, 2400]);
  });

  test('a wait that is over says what held the lane', () => {
    const held = { reason: 'window' as const, since: at(1000), until: at(60_000) };
    const fall = waterfall(
      job('processing', [entry(0, 'accepted'), entry(60_500, 'started', { upstream: 'a', waited: held })]),
      T + 61_000,
    );
    expect(fall.bars.map((bar) => [bar.kind, bar.from - T, (bar.to ?? T) - T, bar.reason])).toEqual([
      ['queued', 0, 1000, undefined],
      ['queued', 1000, 60_000, 'window'],
      ['queued', 60_000, 60_500, undefined],
      ['call', 60_500, 0, undefined],
    ]);
  });

  test('a job that waits has an open bar until now', () => {
    const fall = waterfall(job('queued', [entry(0, 'accepted')]), T + 8000);
    expect(short(fall)).toEqual([['queued', 0, undefined, undefined]]);
    expect(fall.to - T).toBe(8000);
  });

  test('a backoff that is not over is not a wait in the queue', () => {
    const fall = waterfall(
      job('pending', [
        entry(0, 'accepted'),
        entry(0, 'started', { upstream: 'a' }),
        entry(100, 'failed', { upstream: 'a' }),
        entry(100, 'retry_scheduled', { detail: at(5000) }),
      ]),
      T + 1000,
    );
    expect(short(fall)).toEqual([
      ['call', 0, 100, 'failed'],
      ['backoff', 100, undefined, undefined],
    ]);
  });

  test('a failed call is not the end, a failed job is', () => {
    const fall = waterfall(
      job('failed', [
        entry(0, 'accepted'),
        entry(10, 'started', { upstream: 'a' }),
        entry(40, 'failed', { upstream: 'a', code: '422' }),
        entry(40, 'failed', { detail: 'answered 422' }),
      ]),
      T + 9000,
    );
    expect(short(fall)).toEqual([
      ['queued', 0, 10, undefined],
      ['call', 10, 40, 'failed'],
    ]);
    expect(fall.to - T).toBe(40);
  });

  test('the step from one upstream to the next is not a wait', () => {
    const steps = [
      entry(0, 'accepted'),
      entry(1, 'started', { upstream: 'a' }),
      entry(40, 'failed', { upstream: 'a' }),
      entry(42, 'started', { upstream: 'b' }),
    ];
    expect(short(waterfall(job('processing', steps), T + 90)).map(([kind]) => kind)).toEqual(['call', 'call']);
  });

  test('between a failed call and the next, the job waits', () => {
    const fall = waterfall(
      job('queued', [
        entry(0, 'accepted'),
        entry(0, 'started', { upstream: 'a' }),
        entry(40, 'failed', { upstream: 'a', code: '503' }),
      ]),
      T + 90,
    );
    expect(short(fall)).toEqual([
      ['call', 0, 40, 'failed'],
      ['queued', 40, undefined, undefined],
    ]);
  });

  test('a lost worker, an async upstream, a rest of the chain', () => {
    const fall = waterfall(
      job('completed', [
        entry(0, 'accepted'),
        entry(0, 'started', { upstream: 'a' }),
        entry(10_000, 'taken_up'),
        entry(10_100, 'started', { upstream: 'a' }),
        entry(10_200, 'failed', { upstream: 'a' }),
        entry(10_200, 'waits_for_rest_of_chain'),
        entry(12_000, 'started', { upstream: 'b' }),
        entry(12_100, 'awaiting', { upstream: 'b' }),
        entry(60_000, 'completed'),
      ]),
      T + 99_000,
    );
    expect(short(fall)).toEqual([
      ['call', 0, 10_000, 'lost'],
      ['queued', 10_000, 10_100, undefined],
      ['call', 10_100, 10_200, 'failed'],
      ['chain', 10_200, 12_000, undefined],
      ['call', 12_000, 12_100, 'ok'],
      ['awaiting', 12_100, 60_000, 'ok'],
    ]);
  });

  test('the end of the TTL is shown if it is near', () => {
    const waiting = [entry(0, 'accepted')];
    expect(waterfall(job('queued', waiting, at(15_000)), T + 10_000).expires).toBe(T + 15_000);
    expect(waterfall(job('queued', waiting, at(86_400_000)), T + 10_000).expires).toBeUndefined();
  });

  test('an answer from the cache has no bars and still a length', () => {
    const fall = waterfall(job('completed', [entry(0, 'accepted'), entry(0, 'served'), entry(0, 'completed')]), T + 5);
    expect(fall.bars).toEqual([]);
    expect(fall.to).toBeGreaterThan(fall.from);
  });
});
