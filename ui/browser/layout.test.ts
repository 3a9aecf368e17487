/** 360 px to 4K, light and dark, with and without motion; and what the page is made of. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { pages } from './support/pages';
import { town, type Town } from './support/town';
import { useBrowser, visit } from './support/visit';

useBrowser();
let here: Town;
beforeAll(async () => {
  here = await town();
});
afterAll(() => here?.close());

describe.each([360, 768, 1280, 3840])('%i px', (width) => {
  test('no page scrolls sideways, and what matters is where one looks', async () => {
    const page = await visit(here.server, '#/', { width, height: width > 2000 ? 2160 : 800 });
    for (const { hash, ready } of pages(here)) {
      await page.goto(`${here.server.url}/${hash}`);
      await ready(page);
      const { wide, heading, main, moving } = await page.evaluate(() => ({
        wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
        heading: document.querySelector('main h1')?.getBoundingClientRect().top ?? 0,
        main: document.querySelector('main')?.getBoundingClientRect().width ?? 0,
        moving: document.getAnimations().length,
      }));
      expect(wide, `${hash} scrolls`).toBeLessThanOrEqual(0);
      expect(heading, `${hash}: the heading`).toBeLessThan(160);
      expect(main / width, `${hash}: the page uses the screen`).toBeGreaterThan(0.7);
      expect(moving, `${hash}: the reader wants no motion`).toBe(0);
    }
  });
});

describe('a large screen', () => {
  const measured = async (width: number) => {
    const page = await visit(here.server, '#/', { width, height: (width * 9) / 16 });
    await page.locator('.lock').first().waitFor();
    await page.locator('canvas').first().waitFor();
    return page.evaluate(() => {
      const size = (selector: string) => document.querySelector(selector)!.getBoundingClientRect();
      const cards = [...document.querySelectorAll('main .panel')].map((card) => card.getBoundingClientRect());
      return {
        text: Number.parseFloat(getComputedStyle(document.body).fontSize),
        lock: size('.lock svg').width,
        chart: size('.chart').height,
        used: Math.max(...cards.map(({ right }) => right)) / innerWidth,
        low: Math.max(...cards.map(({ bottom }) => bottom)) / innerHeight,
      };
    });
  };
  test('shows everything larger, and is filled', async () => {
    const [usual, wide, huge] = [await measured(1280), await measured(2560), await measured(3840)];
    for (const name of ['text', 'lock', 'chart'] as const) {
      expect(wide[name] / usual[name], name).toBeGreaterThan(1.3);
      expect(huge[name] / usual[name], name).toBeGreaterThan(1.9);
    }
    for (const { used, low } of [wide, huge]) {
      expect(used).toBeGreaterThan(0.95);
      expect(low).toBeGreaterThan(0.75);
    }
  });
});

test('on a phone the menu opens, leads to a page and closes', async () => {
  const page = await visit(here.server, '#/', { width: 360 });
  const menu = page.getByRole('button', { name: 'Menu' });
  await menu.click();
  await page.getByRole('navigation').getByRole('link', { name: 'Lanes' }).click();
  await page.getByRole('heading', { level: 1, name: 'Lanes' }).waitFor();
  await page.getByRole('navigation').waitFor({ state: 'hidden' });
  expect(await menu.getAttribute('aria-expanded')).toBe('false');
});

describe('the theme', () => {
  test('is the system’s, unless the reader chooses another', async () => {
    const page = await visit(here.server, '#/', { scheme: 'dark' });
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await background();
    await page.getByRole('button', { name: 'Light' }).click();
    const light = await background();
    expect(light).not.toBe(dark);
    await page.reload();
    await page.getByRole('navigation').waitFor();
    expect(await background()).toBe(light);
    await page.getByRole('button', { name: 'As the system' }).click();
    expect(await background()).toBe(dark);
  });
});

test('the water moves, unless the reader wants no motion', async () => {
  const page = await visit(here.server, '#/', { motion: true });
  await page.locator('.lock').first().waitFor();
  const moving = () => page.evaluate(() => document.getAnimations().length);
  expect(await moving()).toBeGreaterThan(0);
  await page.emulateMedia({ reducedMotion: 'reduce' });
  expect(await moving()).toBe(0);
});

test('the page is four files of this server, under a strict policy', async () => {
  const page = await visit(here.server);
  await page.getByRole('heading', { level: 1 }).first().waitFor();
  const answer = await page.request.get(`${here.server.url}/`);
  const policy = answer.headers()['content-security-policy'] ?? '';
  expect(policy).toContain("default-src 'none'");
  expect(policy).toContain("script-src 'self'");
  expect(policy).not.toContain('unsafe');
  const files = await page.evaluate(() =>
    performance
      .getEntriesByType('resource')
      .map((entry) => new URL(entry.name).pathname)
      .filter((path) => !path.startsWith('/v1/')),
  );
  expect(files.map((path) => path.replace(/-[\w-]+\./, '.')).sort()).toEqual(['/assets/app.css', '/assets/app.js']);
  const worker = /\/assets\/live-[\w-]+\.js/.exec(
    await (await page.request.get(`${here.server.url}${files.find((path) => path.endsWith('.js'))}`)).text(),
  );
  expect((await page.request.get(`${here.server.url}${worker?.[0]}`)).status()).toBe(200);
});
