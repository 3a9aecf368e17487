/**
 * WCAG 2.2 AA, as far as a program can tell: axe-core finds nothing serious on any page, in either theme, on any screen.
 * `ECLUSA_LONG=1` looks at each theme on each screen.
 */

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { AxeResults } from 'axe-core';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { pages } from './support/pages';
import { Server } from './support/server';
import { town, type Town } from './support/town';
import { useBrowser, visit } from './support/visit';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

useBrowser();
let here: Town;
beforeAll(async () => {
  here = await town();
});
afterAll(() => here?.close());

/** What axe-core finds serious: which rule, and where. */
async function serious(page: Page): Promise<string[]> {
  const { violations } = await page.evaluate(() =>
    (globalThis as unknown as { axe: { run(options: object): Promise<AxeResults> } }).axe.run({
      resultTypes: ['violations'],
      // Off by default: WCAG 2.2 has it, 2.1 has not.
      rules: { 'target-size': { enabled: true } },
    }),
  );
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .flatMap(({ id, help, nodes }) =>
      nodes.map(({ html, target }) => `${id} (${help}): ${target.join(' ')} ${html.slice(0, 120)}`),
    );
}

const LOOKS = [
  ['light', 1280],
  ['dark', 360],
  ...(process.env.ECLUSA_LONG
    ? ([
        ['light', 360],
        ['dark', 1280],
      ] as const)
    : []),
] as const;

describe.each(LOOKS)('%s, %i px wide', (scheme, width) => {
  test('every page', async () => {
    const page = await visit(here.server, '#/', { scheme, width });
    await page.evaluate(AXE);
    for (const { hash, ready } of pages(here)) {
      await page.goto(`${here.server.url}/${hash}`);
      await ready(page);
      expect(await serious(page), hash).toEqual([]);
    }
  });

  test('dialogs, and the menu of a phone', async () => {
    const page = await visit(here.server, '#/lanes', { scheme, width });
    await page.evaluate(AXE);
    const dialog = page.getByRole('dialog');
    const close = async () => {
      await page.keyboard.press('Escape');
      await dialog.waitFor({ state: 'detached' });
    };
    await page.getByRole('button', { name: 'Pause: score' }).click();
    await dialog.waitFor();
    expect(await serious(page), 'an action').toEqual([]);
    await close();
    await page.keyboard.press('?');
    await page.getByRole('dialog', { name: 'Keyboard' }).waitFor();
    expect(await serious(page), 'the keys').toEqual([]);
    await close();
    await page.keyboard.press('/');
    await dialog.getByRole('combobox').fill('score');
    expect(await serious(page), 'the search').toEqual([]);
    await close();
    const menu = page.getByRole('button', { name: 'Menu' });
    if (await menu.isVisible()) {
      await menu.click();
      await page.getByRole('navigation').waitFor();
      expect(await serious(page), 'the menu').toEqual([]);
    }
  });
});

describe('of other servers', () => {
  const lane = '[lanes.work]\nchain = ["third"]\n[upstreams.third]\nurl = "http://127.0.0.1:9"\n';
  const key = '[[auth.keys]]\nname = "a"\nrole = "admin"\nkey = "0123456789abcdef"\n';
  const servers: Server[] = [];
  afterAll(() => Promise.all(servers.map((server) => server.stop())));

  test.each([
    ['the sign-in page', lane + key, 'Sign in'],
    ['the first page of a fresh one', lane, 'No job has been sent yet.'],
  ])('%s', async (_, config, heading) => {
    const server = await Server.start(config);
    servers.push(server);
    for (const scheme of ['light', 'dark'] as const) {
      const page = await visit(server, '#/', { scheme });
      await page.evaluate(AXE);
      await page.getByRole('heading', { level: 1, name: heading }).waitFor();
      expect(await serious(page), scheme).toEqual([]);
    }
  });
});
