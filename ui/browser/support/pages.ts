/** Every page of a town, and how to know that it shows its data, in any language. */

import type { Page } from 'playwright-core';
import type { Town } from './town';

export interface Stop {
  hash: string;
  ready(page: Page): Promise<void>;
}

export function pages(town: Town): Stop[] {
  /** The page before has no such landmark: it may still be shown for a moment. */
  const stop = (hash: string, landmark: string): Stop => ({
    hash,
    ready: async (page) => {
      await page.locator('main').locator(landmark).first().waitFor();
      // What depends on measured sizes is drawn a frame later.
      await page.evaluate(() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn))));
    },
  });
  return [
    stop('#/', 'section[aria-labelledby=needs] li'),
    stop('#/lanes', 'tbody tr'),
    stop('#/lanes/score', '.stat'),
    stop('#/lanes/held', '.page:has(h1:text-is("held")) section[aria-labelledby=tenants] li'),
    stop('#/upstreams', 'tbody tr'),
    stop('#/upstreams/moody', 'section[aria-labelledby=codes] tbody tr'),
    stop('#/upstreams/fast', 'section[aria-labelledby=keys] li'),
    stop('#/jobs', 'tbody tr'),
    stop(`#/jobs/${town.completed}`, 'section[aria-labelledby=events] tbody tr'),
    stop(`#/jobs/${town.waiting}`, 'section[aria-labelledby=why] dl'),
    stop('#/tenants?lane=score', 'tbody tr .share'),
    stop('#/dead-letters', 'section[aria-labelledby=tenant] li'),
    stop(`#/dead-letters/${town.letter}`, 'section[aria-labelledby=data] pre'),
    stop('#/policies', 'tbody tr'),
    stop('#/fleet', 'section[aria-labelledby=processes] tbody tr'),
    stop('#/alerts', 'section[aria-labelledby=firing] tbody tr'),
  ];
}
