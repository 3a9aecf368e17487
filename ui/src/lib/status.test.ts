import { beforeEach, describe, expect, test } from 'vitest';
import golden from '../../../crates/eclusa/src/api/status/sentences.json';
import { setFormat } from './format';
import { en, type Messages } from './i18n/en';
import { ptBR } from './i18n/pt-BR';
import { plain } from './i18n/rich';
import { ru } from './i18n/ru';
import { alertText, need, sentence } from './status';
import { REASONS, type Alert, type Args } from './types';

const NOW = Date.parse('2026-11-17T17:03:00Z');
const held = (more: Args = {}): Args => ({
  lane: 'score',
  reason: 'window',
  upstream: 'bureau',
  limit: 60,
  waiting: 22,
  lastStart: '2026-11-17T17:03:24.000Z',
  ...more,
});
const say = (m: Messages, code: string, args: Args, text = '') => plain(sentence(m, { code, args, text }, NOW));

beforeEach(() => setFormat('en', en.units, en.sizes));

describe('the sentence', () => {
  test('of a full window, in three languages', () => {
    expect(say(en, 'held', held())).toMatch(
      /^bureau has used its 60 requests for this minute: 22 jobs wait, the last starts at 14:03:24\.$/,
    );
    expect(say(ptBR, 'held', held())).toMatch(
      /^bureau já usou as 60 requisições deste minuto: 22 jobs aguardam, o último começa às 14:03:24\.$/,
    );
    expect(say(ru, 'held', held())).toMatch(
      /^bureau уже израсходовал все запросы \(60\) этой минуты: 22 задания ждут, последнее начнётся в 14:03:24\.$/,
    );
  });

  test('of one job is singular', () => {
    expect(say(en, 'held', held({ waiting: 1, lastStart: null }))).toBe(
      'bureau has used its 60 requests for this minute: 1 job waits.',
    );
    expect(say(ru, 'held', held({ waiting: 21, lastStart: null }))).toMatch(/21 задание ждёт\.$/);
    expect(say(ru, 'held', held({ waiting: 11, lastStart: null }))).toMatch(/11 заданий ждут\.$/);
  });

  test('exists for every reason in every language', () => {
    for (const m of [en, ptBR, ru]) {
      for (const reason of REASONS) {
        const text = say(m, 'held', held({ reason, upstream: null, limit: null }));
        expect(text).toMatch(/22/);
        expect(text).not.toMatch(/undefined|null/);
      }
    }
  });

  test('of a reason named like a property of all objects is the general one', () => {
    expect(say(en, 'held', held({ reason: 'toString', lastStart: null }))).toBe('score is held: 22 jobs wait.');
  });

  test('of a code that is not known is the server’s', () =>
    expect(say(en, 'new_thing', {}, 'As the server says.')).toBe('As the server says.'));

  test('of one process and of several', () => {
    const since = new Date(NOW - 4 * 3600e3 - 65e3).toISOString();
    expect(say(en, 'fleet', { processes: 3, owner: 'gw-2', since, ack: 'fsync' }).replace(/\u202f/g, ' ')).toBe(
      '3 processes, owner gw-2, accepted means on disk.',
    );
    expect(say(en, 'fleet', { processes: 1, owner: 'gw-2', since: null, ack: null })).toBe('1 process.');
  });

  test('of flowing says how fast, unless nothing moves', () => {
    expect(say(en, 'flows', { perSecond: 14.2 })).toBe('Everything flows, 14.2/s.');
    expect(say(en, 'flows', { perSecond: 0 })).toBe('Everything flows.');
  });
});

/** The server's text as the page shows it: names set off, times of day local. */
const shown = (text: string) =>
  text
    .replace(/`([^`]*)`/g, '$1')
    .replace(/(\d\d):(\d\d:\d\d) UTC/g, (_, hour: string, rest: string) => `${String(+hour - 3).padStart(2, '0')}:${rest}`);

describe('in English the page says what `eclusa status` prints', () => {
  test.each(golden.sentences)('$text', ({ code, args, text }) => {
    const said = plain(sentence(en, { code, args: args as unknown as Args, text: 'not translated' }, Date.parse(golden.now)));
    expect(said.replace(/[\u202f\u00a0]/g, ' ')).toBe(shown(text));
  });
});

describe('needs', () => {
  test('dead letters name the most frequent code', () => {
    const item = {
      code: 'dead_letters',
      args: { lane: 'email', count: 14, topCode: '550', topCodeCount: 12, topTenant: 'globex', topTenantCount: 13 },
      text: '',
      severity: 'critical' as const,
    };
    expect(plain(need(en, item, NOW).what)).toBe('14 dead letters in email: 12 with code 550, 13 from globex');
    expect(plain(need(en, { ...item, args: { lane: 'email', count: 1 } }, NOW).what)).toBe('1 dead letter in email');
    expect(need(en, item, NOW).itself).toBe(en.needs.kept);
    const until = { ...item, args: { ...item.args, until: '2026-11-17T18:00:00.000Z' } };
    expect(plain(need(en, until, NOW).itself)).toBe('the oldest is kept until 15:00:00');
  });

  test('an open breaker says when it is tried and what replaces it', () => {
    const args = { upstream: 'moody', until: '2026-11-17T17:03:30.000Z', fallback: 'flaky' };
    const item = { code: 'breaker_open', args, text: '', severity: 'warning' as const };
    expect(plain(need(en, item, NOW).itself)).toBe('tried again 14:03:30, flaky steps in');
  });

  test('an alert is made from its arguments', () => {
    const item = {
      code: 'alert',
      args: { name: 'breaker_open', upstream: 'moody' },
      text: 'x',
      severity: 'warning' as const,
    };
    expect(plain(need(en, item, NOW).what)).toBe('The breaker of moody is open.');
  });
});

describe('alerts', () => {
  const alert = (more: Partial<Alert>): Alert => ({
    name: 'oldest_wait',
    severity: 'warning',
    lane: 'email',
    value: 400,
    threshold: 300,
    since: null,
    text: '',
    ...more,
  });

  test('have their numbers in the right unit', () => {
    expect(plain(alertText(en, alert({}))).replace(/\u202f/g, ' ')).toBe(
      'A job of lane email has waited for 6 min 40 s; the limit is 5 min.',
    );
    expect(plain(alertText(en, alert({ name: 'dead_letter_rate', value: 0.034, threshold: 0.02 }))).replace(/\u202f/g, ' ')).toBe(
      '3.4 % of the jobs of lane email became dead letters; the limit is 2 %.',
    );
  });

  test('that are not known are the server’s, with names set off', () => {
    expect(alertText(en, alert({ name: 'new_rule', text: 'Resolved: Lane `email` is odd.' }))).toBe(
      'Lane \u0001email\u0002 is odd.',
    );
  });
});
