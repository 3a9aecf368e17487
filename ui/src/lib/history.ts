/** Points of `GET /v1/history` as the columns that charts draw. */

import type { History, LanePoint, UpstreamPoint } from './types';

/** Chosen ranges, in minutes. */
export const RANGES = [5, 15, 60, 360, 1440] as const;

/** The smallest range that covers `ms`, else the largest. */
export function covering(ms: number): number {
  return RANGES.find((minutes) => ms <= minutes * 60_000) ?? RANGES[RANGES.length - 1]!;
}

export type Column = (number | null)[];

/** Seconds since 1970. */
export function times(points: { at: string }[]): number[] {
  return points.map((point) => Date.parse(point.at) / 1000);
}

/**
 * What happened in a point, per second. The minute under way has been counted for less than a minute, so its rate is that of the
 * part that has passed; its first seconds say too little to be drawn.
 */
export function perSecond<P extends { at: string; partial?: boolean }>(
  history: History<P>,
  value: (point: P) => number,
  now: number,
): Column {
  return history.points.map((point) => {
    if (!point.partial) return value(point) / history.stepSec;
    const passed = (now - Date.parse(point.at)) / 1000;
    return passed < 10 ? null : value(point) / Math.min(passed, history.stepSec);
  });
}

export function column<P>(history: History<P>, value: (point: P) => number | null | undefined): Column {
  return history.points.map((point) => value(point) ?? null);
}

/** Sums over the range. */
export function totals(history: History<LanePoint>): Record<'accepted' | 'completed' | 'failed' | 'dropped', number> {
  const sum = { accepted: 0, completed: 0, failed: 0, dropped: 0 };
  for (const point of history.points) {
    sum.accepted += point.accepted;
    sum.completed += point.completed;
    sum.failed += point.failed;
    sum.dropped += point.dropped;
  }
  return sum;
}

/** The status words that occur, the most frequent first. */
export function statusWords(history: History<UpstreamPoint>): string[] {
  const sums = new Map<string, number>();
  for (const point of history.points) {
    for (const [word, count] of Object.entries(point.statuses)) sums.set(word, (sums.get(word) ?? 0) + count);
  }
  return [...sums]
    .filter(([, count]) => count > 0)
    .sort((a, b) => b[1] - a[1])
    .map(([word]) => word);
}
