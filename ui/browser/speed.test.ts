/** The first paint. Nothing else may run beside this. */

import type { Page } from 'playwright-core';
import { afterAll, beforeAll, test } from 'vitest';
import { town, type Town } from './support/town';
import { until } from './support/until';
import { useBrowser, visit } from './support/visit';

const FIRST_PAINT_MS = 300;

useBrowser();
let here: Town;
beforeAll(async () => {
  here = await town();
});
afterAll(() => here?.close());

test(`the page is there within ${FIRST_PAINT_MS} ms`, async () => {
  const paints: number[] = [];
  const painted = (page: Page) => page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
  // The best of several: how long it takes, not how busy the machine is.
  const quick = async () => {
    const page = await visit(here.server);
    paints.push(await until('a first paint', () => painted(page)));
    await page.close();
    return Math.min(...paints) < FIRST_PAINT_MS;
  };
  await until('a quick first paint', quick, () => paints);
});
