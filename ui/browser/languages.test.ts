/** English, Português (Brasil) and Русский: chosen by the browser, switchable, complete. */

import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { en } from '../src/lib/i18n/en';
import { ptBR } from '../src/lib/i18n/pt-BR';
import { ru } from '../src/lib/i18n/ru';
import { pages } from './support/pages';
import { town, type Town } from './support/town';
import { useBrowser, visit } from './support/visit';

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
  'Unprocessable|Entity|Internal|Server|Error|Service|Unavailable|answered',
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

test('no page has words left in English when it is Russian', async () => {
  const page = await visit(here.server, '#/', { locale: 'ru-RU' });
  for (const { hash, ready } of pages(here)) {
    await page.goto(`${here.server.url}/${hash}`);
    await ready(page);
    const left = (await texts(page)).filter((text) => latin(text).length > 0);
    expect(left, hash).toEqual([]);
  }
});

test('no page has an English text where there is a Portuguese one', async () => {
  const strings = (value: unknown): string[] =>
    typeof value === 'string' ? [value] : value && typeof value === 'object' ? Object.values(value).flatMap(strings) : [];
  const own = new Set(strings(ptBR));
  const english = new Set(strings(en).filter((text) => !own.has(text)));
  const page = await visit(here.server, '#/', { locale: 'pt-BR' });
  for (const { hash, ready } of pages(here)) {
    await page.goto(`${here.server.url}/${hash}`);
    await ready(page);
    expect(
      (await texts(page)).filter((text) => english.has(text)),
      hash,
    ).toEqual([]);
  }
});
