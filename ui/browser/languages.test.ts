/** English, Português (Brasil) and Русский: chosen by the browser, switchable, complete. */

import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { en, type Messages } from '../src/lib/i18n/en';
import { ptBR } from '../src/lib/i18n/pt-BR';
import { pieces, plain } from '../src/lib/i18n/rich';
import { ru } from '../src/lib/i18n/ru';
import { pages } from './support/pages';
import { Server } from './support/server';
import { town, type Town } from './support/town';
import { tolerate, useBrowser, visit } from './support/visit';

useBrowser();
let here: Town;
beforeAll(async () => {
  here = await town();
});
afterAll(() => here?.close());

/** Every text that the page shows or reads out, without what is not the page's own words. */
async function texts(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const found: string[] = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const { parentElement } = node;
      // Ids, codes and bodies; the names of the languages.
      if (parentElement?.closest('.mono, .id, pre, code, kbd, select[aria-label], noscript')) continue;
      found.push(node.textContent ?? '');
    }
    for (const element of document.body.querySelectorAll('[aria-label], [placeholder], [title]'))
      for (const name of ['aria-label', 'placeholder', 'title']) found.push(element.getAttribute(name) ?? '');
    return found.map((text) => text.replace(/\s+/g, ' ').trim()).filter((text) => text !== '');
  });
}

/** Names of the fixture, units and words that are the same in every language. */
const NAMES = [
  'score|render|mail|held|slow|proxy|bureau|moody|flaky|post|hangs|fast|acme|globex|initech|PER_CLIENT|first|second|update',
  'Eclusa|Retry-After|TTL|p50|p95|curl|JSON|API|UTC|SMTP|Redis|embedded|data|memory|xx|jobId|GET|Content-Type|x-client',
  'Enter|Unprocessable|Entity|Internal|Server|Error|Service|Unavailable|answered',
].join('|');
const NAME = new RegExp(`\\b(${NAMES})\\b`, 'g');
const latin = (text: string) =>
  text
    .replace(/[0-9a-f]{8,}[\w…-]*/g, '')
    .replace(NAME, '')
    .match(/[A-Za-z]{3,}/g) ?? [];

describe('the browser chooses', () => {
  test.each([
    ['pt-PT', ptBR],
    ['ru-RU', ru],
    ['de-DE', en],
  ])('%s', async (locale, m) => {
    const page = await visit(here.server, '#/lanes', { locale });
    await page.getByRole('heading', { level: 1, name: m.lanes.title }).waitFor();
  });
});

test('the reader chooses otherwise, and it stays so', async () => {
  const page = await visit(here.server, '#/lanes');
  await page.getByLabel('Language').selectOption('Русский');
  await page.getByRole('heading', { level: 1, name: ru.lanes.title }).waitFor();
  expect(await page.locator('html').getAttribute('lang')).toBe('ru');
  await page.reload();
  await page.getByRole('heading', { level: 1, name: ru.lanes.title }).waitFor();
});

/** Looks at the page; `where` says what it shows. */
type Look = (page: Page, where: string) => Promise<void>;

/** Every page of the town, dialogs, and what an action says when it is done. */
async function throughTheTown(locale: string, m: Messages, look: Look): Promise<void> {
  const page = await visit(here.server, '#/', { locale });
  for (const { hash, ready } of pages(here)) {
    await page.goto(`${here.server.url}/${hash}`);
    await ready(page);
    await look(page, hash);
  }
  const dialog = page.getByRole('dialog');
  const close = async () => {
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
  };
  await page.goto(`${here.server.url}/#/jobs?lane=held&since=2026-01-01T00:00:00.000Z`);
  await page.getByRole('button', { name: m.jobs.bulk }).click();
  await dialog.getByText(m.jobs.counted(7, '7')).waitFor();
  await look(page, 'what a bulk action asks');
  await close();
  await page.keyboard.press('?');
  await dialog.waitFor();
  await look(page, 'the keys');
  await close();
  await page.keyboard.press('/');
  await dialog.getByRole('combobox').fill('score');
  await look(page, 'the search');
  await close();
  await page.goto(`${here.server.url}/#/lanes`);
  await page.getByRole('button', { name: `${m.lanes.pause}: mail` }).click();
  await dialog.waitFor();
  await look(page, 'what an action asks');
  await dialog.getByRole('button', { name: m.lanes.pause, exact: true }).click();
  await page.getByRole('status').getByText(m.lanes.pauseDone('mail')).waitFor();
  await look(page, 'what an action says');
  await here.server.post('/v1/lanes/mail/resume');
}

/** What is seen before the first job, and before one has signed in. */
async function atTheDoor(locale: string, m: Messages, look: Look): Promise<void> {
  const lane = '[lanes.mail]\nchain = ["post"]\n[upstreams.post]\nurl = "http://127.0.0.1:9"\n';
  const key = '[[auth.keys]]\nname = "root"\nrole = "admin"\nkey = "0123456789abcdef"\n';
  const [fresh, guarded] = await Promise.all([Server.start(lane), Server.start(key + lane)]);
  onTestFinished(async () => void (await Promise.all([fresh.stop(), guarded.stop()])));
  const first = await visit(fresh, '#/', { locale });
  await first.getByRole('heading', { level: 1, name: m.status.fresh }).waitFor();
  await look(first, 'the first page of a fresh server');
  const door = await visit(guarded, '#/', { locale });
  tolerate(door, /401/);
  await door.getByLabel(m.signIn.key, { exact: true }).fill('wrong');
  await door.getByRole('button', { name: m.signIn.submit }).click();
  await door.getByRole('alert').getByText(m.signIn.wrong).waitFor();
  await look(door, 'signing in');
}

describe('has no words left in English when it is Russian', () => {
  const look: Look = async (page, where) =>
    expect(
      (await texts(page)).filter((text) => latin(text).length > 0),
      where,
    ).toEqual([]);
  test('what is inside', () => throughTheTown('ru-RU', ru, look));
  test('what is seen before', () => atTheDoor('ru-RU', ru, look));
});

/** Stands for every argument of a text, and for whatever an argument may have; as a number it is plural. */
const ANY = '\u0010';
const anything: unknown = new Proxy(
  {},
  {
    get: (_, key) => (key === Symbol.toPrimitive ? (hint: string) => (hint === 'number' ? 2 : ANY) : anything),
  },
);

/** What may be a text of its own on the page: from one argument to another, as times and emphasised parts are elements. */
function fragments(text: string): string[] {
  const parts = text.split(ANY);
  return parts.flatMap((_, from) => parts.slice(from).map((_, size) => parts.slice(from, from + size + 1).join(ANY)));
}

/** Every text of a dictionary as it may be shown, with `ANY` for arguments. */
function patterns(value: unknown): string[] {
  if (typeof value === 'function') {
    const text = String((value as (...given: unknown[]) => unknown)(...Array.from({ length: value.length }, () => anything)));
    const shown = [plain(text), ...pieces(text).map((piece) => piece.text)].flatMap(fragments);
    return shown.map((one) => one.replace(/\s+/g, ' ').trim());
  }
  return typeof value === 'string' ? [value] : Object.values(value as object).flatMap(patterns);
}

describe('has no English text where there is a Portuguese one', () => {
  const own = new Set(patterns(ptBR));
  // What has no words of its own fits anything.
  const english = [...new Set(patterns(en))].filter((text) => !own.has(text) && /\p{L}{2}/u.test(text.replaceAll(ANY, ' ')));
  const literal = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
  const fits = english.map((text) => new RegExp(`^${text.split(ANY).map(literal).join('.+')}$`));

  test('the texts are found by what is shown', () => {
    const shown = [
      'Lanes',
      'Pause mail?',
      'mail is paused.',
      'are started again, as its gates allow. 2 wait now.',
      'in 5 min',
      'has used its 60 requests for this minute: 22 jobs wait, the last starts at',
      '; 2 other lanes wait.',
    ];
    for (const text of shown)
      expect(
        fits.some((one) => one.test(text)),
        text,
      ).toBe(true);
  });

  const look: Look = async (page, where) =>
    expect(
      (await texts(page)).filter((text) => fits.some((one) => one.test(text))),
      where,
    ).toEqual([]);
  test('what is inside', () => throughTheTown('pt-BR', ptBR, look));
  test('what is seen before', () => atTheDoor('pt-BR', ptBR, look));
});
