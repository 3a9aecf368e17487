import { beforeEach, describe, expect, test } from 'vitest';
import { setFormat } from './format';
import { en } from './i18n/en';
import { filterWords, opens, owner, progressText } from './words';

const NOW = Date.parse('2026-11-17T17:00:00Z');
const inSeconds = (seconds: number) => new Date(NOW + seconds * 1000).toISOString();

beforeEach(() => setFormat('en', en.units, en.sizes));

describe('when a gate opens', () => {
  const say = (seconds: number) =>
    opens(en, { reason: 'rate_limit', open: false, until: inSeconds(seconds) }, NOW).replace(/\s/g, ' ');

  test('counts seconds while they matter', () => {
    expect(say(7.2)).toBe('opens in 8 s');
    expect(say(-1)).toBe('opens in 0 s');
    expect(say(125)).toBe('opens in 2 min 5 s');
    expect(say(3494)).toBe('opens in 59 min');
  });

  test('a breaker that is open lets a probe through, which may fail', () =>
    expect(opens(en, { reason: 'circuit_open', open: false, until: inSeconds(7) }, NOW).replace(/\s/g, ' ')).toBe(
      'next probe in 7 s',
    ));

  test('a slot opens when a call ends: nobody knows when', () =>
    expect(opens(en, { reason: 'concurrency', open: false, until: inSeconds(7) }, NOW)).toBe('holding'));
});

test('whose a gate is', () => {
  const scope = '18d4956485ad7666b6a267f418061e86';
  expect(owner(en, {})).toBe('Lane');
  expect(owner(en, { upstream: null, tenant: 'acme' })).toBe('Tenant acme');
  expect(owner(en, { upstream: 'dict' })).toBe('dict');
  expect(owner(en, { upstream: 'dict', policy: 'PER_CLIENT', scope })).toBe('dict PER_CLIENT 18d49564…');
  expect(owner(en, { upstream: 'dict', policy: 'ALL', scope: 'upstream' })).toBe('dict ALL');
});

test('a filter is shown in words', () =>
  expect(filterWords(en, { tenant: 'acme', status: 'queued', since: '24h', other: 'x' }, NOW)).toEqual([
    'Tenant: acme',
    'Status: queued',
    'From: 24 h',
    'other: x',
  ]));

test('only times are read as times', () =>
  expect(filterWords(en, { code: '550', tenant: '24h', until: '2026-11-17T17:00:00.000Z' }, NOW)).toEqual([
    'Code: 550',
    'Tenant: 24h',
    'Until: 14:00:00 · 2026-11-17 17:00:00.000 UTC',
  ]));

test('progress says how far it is, how fast, and when it will be done', () => {
  const say = (done: number, seconds: number) => progressText(en, done, 10_000, seconds).replace(/\s/g, ' ');
  expect(say(0, 0)).toBe('0 of 10,000');
  expect(say(2000, 2.5)).toBe('2,000 of 10,000 · 800/s · done in 10 s');
  expect(say(10_000, 10)).toBe('10,000 of 10,000 · 1,000/s');
});
