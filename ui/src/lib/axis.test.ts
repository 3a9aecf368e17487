import { describe, expect, test } from 'vitest';
import { alone, INCREMENTS, TIME_INCREMENTS, type Unit } from './axis';
import { count, duration, minute, rateTick } from './format';

/** Lines that fit above one another on the smallest chart. */
const MOST_LINES = 4;

describe('the lines of an axis are written differently', () => {
  const formats: [Unit, (value: number) => string, number][] = [
    ['count', count, 1e7],
    ['rate', rateTick, 1e5],
    ['ms', duration, 1e8],
  ];
  test.each(formats)('%s', (unit, format, most) => {
    for (let top = INCREMENTS[unit][0]!; top < most; top *= 1.07) {
      const step = INCREMENTS[unit].find((one) => (top * 1.15) / one <= MOST_LINES)!;
      const lines = Array.from({ length: Math.floor((top * 1.15) / step) + 1 }, (_, i) => format(i * step));
      expect(new Set(lines).size, `${lines}`).toBe(lines.length);
    }
  });
});

test('times that follow each other are written differently', () => {
  for (const step of TIME_INCREMENTS.filter((step) => step < 86_400)) {
    expect(minute(step * 1000), `${step} s`).not.toBe(minute(0));
  }
});

test('points that no line would show', () => {
  expect(alone([null, 1, null, 2, 3, null, 4])).toEqual([1, 6]);
  expect(alone([5])).toEqual([0]);
  expect(alone([1, 2, 3])).toEqual([]);
  expect(alone([])).toEqual([]);
});
