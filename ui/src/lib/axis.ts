/** Steps of the y axis, and points that no line shows. */

export type Unit = 'count' | 'rate' | 'ms';

/** 1, 2, 5, 10, 20, 50, … of `least`. */
function decades(least: number, many: number): number[] {
  return Array.from({ length: many }, (_, i) => least * 10 ** i).flatMap((one) => [one, 2 * one, 5 * one]);
}

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;

/** Steps between the lines of an axis: small enough to be chosen from, large enough for each line to be written differently. */
export const INCREMENTS: Record<Unit, number[]> = {
  count: decades(1, 9),
  // Rates are written with two decimals.
  rate: decades(0.01, 9),
  ms: [
    ...decades(1, 3),
    ...[1, 2, 5, 10, 20, 30].map((one) => one * SECOND),
    ...[1, 2, 5, 10, 20, 30].map((one) => one * MINUTE),
    ...[1, 2, 4, 6, 12, 24, 48, 120, 240, 480].map((one) => one * HOUR),
  ],
};

/** Steps between the times of an axis, in seconds: whole minutes, as its labels have no seconds. */
export const TIME_INCREMENTS = [1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360, 720, 1440].map((minutes) => minutes * 60);

/** Indexes of values whose neighbours are missing. */
export function alone(values: ArrayLike<number | null | undefined>): number[] {
  const found: number[] = [];
  for (let i = 0; i < values.length; i++) {
    if (values[i] != null && values[i - 1] == null && values[i + 1] == null) found.push(i);
  }
  return found;
}
