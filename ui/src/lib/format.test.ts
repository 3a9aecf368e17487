import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { bytes, count, duration, percent, rate, setFormat, shortId, time, utc, wholeSeconds } from './format';
import { en } from './i18n/en';
import { ptBR } from './i18n/pt-BR';
import { ru } from './i18n/ru';

const plain = (text: string) => text.replace(/[\u202f\u00a0]/g, ' ');

beforeEach(() => setFormat('en', en.units, en.sizes));
afterEach(() => setFormat('en', en.units, en.sizes));

describe('durations', () => {
  test.each([
    [0, '0 ms'],
    [420, '420 ms'],
    [999.4, '999 ms'],
    [1000, '1 s'],
    [1540, '1.5 s'],
    [9940, '9.9 s'],
    [12_400, '12 s'],
    [125_000, '2 min 5 s'],
    [120_000, '2 min'],
    [15_000_000, '4 h 10 min'],
    [259_200_000, '3 d'],
    [-5, '0 ms'],
  ])('%d ms is %s', (ms, text) => expect(plain(duration(ms))).toBe(text));

  test('what is not a number is a dash', () => expect(duration(Number.POSITIVE_INFINITY)).toBe('–'));

  test('countdowns have whole seconds', () => expect(plain(wholeSeconds(8.4))).toBe('8 s'));

  test('units are those of the language', () => {
    setFormat('ru', ru.units, ru.sizes);
    expect(plain(duration(125_000))).toBe('2 мин 5 с');
  });
});

describe('numbers', () => {
  test('are grouped by the language', () => {
    expect(count(12_345)).toBe('12,345');
    setFormat('pt-BR', ptBR.units, ptBR.sizes);
    expect(count(12_345)).toBe('12.345');
    expect(rate(14.25)).toBe('14,3/s');
  });

  test('millions are short', () => expect(count(1_230_000)).toBe('1.2M'));

  test('slow rates are per minute', () => {
    expect(rate(0.05)).toBe('3/min');
    expect(rate(0)).toBe('0/s');
  });

  test('almost everything is not everything', () => {
    expect(plain(percent(0.9999))).toBe('99.9 %');
    expect(plain(percent(1))).toBe('100 %');
    expect(plain(percent(0.034))).toBe('3.4 %');
  });

  test('sizes', () => {
    expect(plain(bytes(512))).toBe('512 B');
    expect(plain(bytes(182 * 1024 * 1024))).toBe('182 MiB');
    expect(plain(bytes(1536))).toBe('1.5 KiB');
  });
});

describe('times', () => {
  const now = Date.parse('2026-11-17T17:03:24.120Z');

  test('are local, and UTC on hover', () => {
    expect(time('2026-11-17T17:03:24.120Z', now)).toBe('14:03:24');
    expect(utc('2026-11-17T17:03:24.120Z')).toBe('2026-11-17 17:03:24.120 UTC');
  });

  test('of another day have the day', () => expect(time('2026-11-16T17:03:24Z', now)).toMatch(/Nov 16.*14:03:24/));
  test('of another year have the year', () => expect(time('2025-11-16T17:03:24Z', now)).toMatch(/2025/));
  test('that are none are a dash', () => expect(time('soon', now)).toBe('–'));
});

test('long ids are cut, others are not', () => {
  expect(shortId('01a1eb7b-a965-7630-8736-cb4ffaddb153')).toBe('01a1eb7b…b153');
  expect(shortId('order-4711')).toBe('order-4711');
});
