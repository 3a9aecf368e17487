import { describe, expect, test } from 'vitest';
import { REASONS, STATUSES } from '../types';
import { en } from './en';
import { preferred } from './languages';
import { ptBR } from './pt-BR';
import { em, pieces, plain } from './rich';
import { ru } from './ru';

/** Every text, by its path; functions are called with something. */
function texts(value: unknown, at = ''): [string, string][] {
  if (typeof value === 'string') return [[at, value]];
  if (typeof value === 'function') {
    const held = {
      lane: 'L',
      upstream: 'U',
      limit: '60',
      waiting: 3,
      count: '3',
      opensAt: '1',
      lastStart: '2',
      policy: 'P',
      tenant: 'T',
      value: '1',
      threshold: '2',
      share: '3',
      shareLimit: '4',
      time: '5',
      timeLimit: '6',
    };
    const given = /held|alerts\.text/.test(at) ? [held] : Array.from({ length: value.length }, () => 5);
    return [[at, String((value as (...args: unknown[]) => unknown)(...given))]];
  }
  return Object.entries(value as object).flatMap(([key, one]) => texts(one, `${at}.${key}`));
}

/** Names, units and words that are the same in several languages. */
const SHARED = /\b(jobs?|tenants?|upstreams?|Retry-After|TTL|id|menu|normal|status|ms|min|[KMGT]iB)\b/gi;

describe.each([
  ['pt-BR', ptBR],
  ['ru', ru],
] as const)('%s', (_, language) => {
  const own = new Map(texts(language));

  test('has every text, and none is empty', () => {
    expect([...own.keys()].sort()).toEqual(
      texts(en)
        .map(([at]) => at)
        .sort(),
    );
    for (const [at, text] of own) expect(text.trim(), at).not.toBe('');
  });

  test('is translated: what is as in English is a name, a unit or a word of both', () => {
    const english = new Map(texts(en));
    for (const [at, text] of own) if (english.get(at) === text) expect(text.replace(SHARED, ''), at).not.toMatch(/\p{L}{2}/u);
  });

  test('says the same things: names and numbers appear in both', () => {
    const names = (text: string) =>
      pieces(text)
        .filter((piece) => piece.strong)
        .map((piece) => piece.text)
        .sort();
    for (const [at, text] of texts(en)) expect(names(own.get(at) ?? ''), at).toEqual(names(text));
  });

  test('ends with an ellipsis where the English does: the button asks first', () => {
    for (const [at, text] of texts(en)) if (text.endsWith('…')) expect(own.get(at)?.endsWith('…'), at).toBe(true);
  });
});

test('every reason and status has a word', () => {
  for (const m of [en, ptBR, ru]) {
    for (const reason of REASONS) expect(m.reason[reason] && m.reasonHint[reason]).toBeTruthy();
    for (const status of STATUSES) expect(m.jobStatus[status]).toBeTruthy();
  }
});

describe('the language', () => {
  test.each([
    [['pt-PT', 'en'], 'pt-BR'],
    [['de', 'ru-RU'], 'ru'],
    [['de'], 'en'],
    [[], 'en'],
    [['en-GB', 'pt-BR'], 'en'],
  ])('%j is %s', (wanted, found) => expect(preferred(wanted)).toBe(found));
});

test('emphasised parts are cut out and can be dropped', () => {
  const text = `${em('bureau')} has ${em('<b>x</b>')}.`;
  expect(pieces(text)).toEqual([
    { text: 'bureau', strong: true },
    { text: ' has ', strong: false },
    { text: '<b>x</b>', strong: true },
    { text: '.', strong: false },
  ]);
  expect(plain(text)).toBe('bureau has <b>x</b>.');
});
