import { describe, expect, test } from 'vitest';
import { covering, perSecond, statusWords, totals } from './history';
import { fullInSec, leftShare } from './policies';
import { progress } from './replays';
import { shares } from './tenants';
import type { History, LanePoint, Policy, Replay, Tenant, UpstreamPoint } from './types';

const T = Date.parse('2026-11-17T17:00:00Z');
const at = (minutes: number) => new Date(T + minutes * 60_000).toISOString();

describe('history', () => {
  const point = (minutes: number, completed: number, partial?: boolean) =>
    ({ at: at(minutes), completed, accepted: 1, failed: 2, dropped: 3, ...(partial ? { partial } : {}) }) as LanePoint;

  test('the minute under way is measured by what has passed of it', () => {
    const history: History<LanePoint> = { stepSec: 60, points: [point(0, 60), point(1, 30, true)] };
    expect(perSecond(history, (one) => one.completed, T + 90_000)).toEqual([1, 1]);
  });

  test('its first seconds say nothing', () => {
    const history: History<LanePoint> = { stepSec: 60, points: [point(1, 1, true)] };
    expect(perSecond(history, (one) => one.completed, T + 63_000)).toEqual([null]);
  });

  test('the range that covers the life of a server', () => {
    expect([0, 5, 5.1, 14, 61, 1000, 5000].map((minutes) => covering(minutes * 60_000))).toEqual([5, 5, 15, 15, 360, 1440, 1440]);
  });

  test('totals and status words', () => {
    expect(totals({ stepSec: 60, points: [point(0, 5), point(1, 6)] })).toEqual({
      accepted: 2,
      completed: 11,
      failed: 4,
      dropped: 6,
    });
    const points = [{ statuses: { '2xx': 3, '429': 9 } }, { statuses: { '2xx': 8, timeout: 0 } }] as unknown as UpstreamPoint[];
    expect(statusWords({ stepSec: 60, points })).toEqual(['2xx', '429']);
  });
});

describe('policies', () => {
  const policy = (availableTokens: number, more: Partial<Policy> = {}): Policy => ({
    name: 'P',
    upstream: 'dict',
    availableTokens,
    capacity: 100,
    refillTokens: 2,
    refillPeriodSec: 60,
    scope: 's',
    ...more,
  });

  test('time to full', () => {
    expect(fullInSec(policy(90))).toBe(300);
    expect(fullInSec(policy(100))).toBe(0);
    expect(fullInSec(policy(-20))).toBe(3600);
    expect(leftShare(policy(-20))).toBe(0);
  });
});

describe('tenants', () => {
  const tenant = (companyId: string, queued: number, currentPriority: number, more: Partial<Tenant> = {}): Tenant => ({
    companyId,
    queued,
    currentPriority,
    roundsWithoutProcessing: 0,
    totalProcessed: 0,
    consecutiveBatchCount: 0,
    processing: 0,
    weight: 1,
    next: false,
    ...more,
  });

  test('shares served against weights', () => {
    const found = shares([
      tenant('a', 0, 1, { totalProcessed: 30, weight: 2 }),
      tenant('b', 0, 1, { totalProcessed: 10, weight: 2 }),
    ]);
    expect(found.get('a')).toEqual({ served: 0.75, fair: 0.5 });
    expect(shares([tenant('a', 0, 1)]).get('a')).toEqual({ served: 0, fair: 1 });
  });
});

describe('a replay', () => {
  const replay: Replay = {
    replayId: 'r',
    status: 'running',
    total: 100,
    replayed: 40,
    failed: 10,
    running: 5,
    remaining: 45,
    startedAt: at(0),
    filter: {},
  };

  test('has a pace and an end', () =>
    expect(progress(replay, T + 50_000)).toEqual({ done: 50, share: 0.5, perSecond: 1, leftSec: 50 }));
  test('that has just begun has no end yet', () =>
    expect(progress({ ...replay, replayed: 0, failed: 0 }, T).leftSec).toBeUndefined());
  test('of nothing is done', () =>
    expect(progress({ ...replay, status: 'done', total: 0, replayed: 0, failed: 0, running: 0, remaining: 0 }, T).share).toBe(1));
});
