/** 100,000 jobs wait: the pages are no larger than with a hundred. */

import type { Page, Route } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Job, Lane } from '../src/lib/types';
import { Server } from './support/server';
import { until } from './support/until';
import { tolerate, useBrowser, visit } from './support/visit';

const JOBS = 100_000;
const BATCH = 1000;

useBrowser();
let server: Server;
/** The oldest: the last that a search would come to. */
let oldest: string;
beforeAll(async () => {
  server = await Server.start('[lanes.work]\nchain = ["third"]\n[upstreams.third]\nurl = "http://127.0.0.1:9"\n');
  await server.post('/v1/lanes/work/pause');
  for (let sent = 0; sent < JOBS; sent += BATCH) {
    const batch = Array.from({ length: BATCH }, (_, i) => ({
      id: `job-${sent + i}`,
      tenant: sent + i === 0 ? 'rare' : `tenant-${i % 100}`,
      request: { path: '/' },
    }));
    const [first] = await server.enqueue('work', batch);
    oldest ??= first!;
  }
});
afterAll(() => server?.stop());

test('the list opens, goes on by cursor and finds one by its id', async () => {
  const page = await visit(server, '#/jobs');
  const rows = page.getByRole('row').filter({ has: page.getByRole('rowheader') });
  const shown = (many: number) => until(`${many} rows`, async () => (await rows.count()) === many);
  await shown(50);
  for (const many of [100, 150]) {
    await page.getByRole('button', { name: 'More' }).click();
    await shown(many);
  }
  const ids = await rows.getByRole('rowheader').allInnerTexts();
  expect(new Set(ids).size).toBe(150);

  await page.getByLabel('Id').fill('job-0');
  await page.getByLabel('Id').press('Enter');
  await shown(1);
  await rows.getByRole('link', { name: 'job-0' }).click();
  await page.getByRole('heading', { level: 1, name: 'job-0' }).waitFor();
  await page.getByText(oldest).waitFor();
});

/** Lets `first` of the calls that `fits` pass, and holds the next one until it is continued. */
async function hold(page: Page, first: number, fits: (url: URL, method: string) => boolean): Promise<{ held: Promise<Route> }> {
  let seen = 0;
  let hold!: (route: Route) => void;
  const held = new Promise<Route>((found) => (hold = found));
  await page.route('**/v1/**', async (route) => {
    const request = route.request();
    if (fits(new URL(request.url()), request.method()) && ++seen === first + 1) hold(route);
    else await route.continue();
  });
  return { held };
}

test('a search that finds little says how far it is, and goes on when asked to', async () => {
  const page = await visit(server, '#/jobs?tenant=rare');
  await page.getByText('Nothing found so far.').waitFor();
  const back = page.getByText('Searched back to').locator('time');
  const { jobs } = await server.get<{ jobs: Job[] }>('/v1/jobs');
  expect(Date.parse((await back.getAttribute('datetime')) ?? '')).toBeLessThan(Date.parse(jobs[0]!.createdAt));
  await page.getByRole('button', { name: 'Search on' }).click();
  await page.getByRole('rowheader', { name: 'job-0', exact: true }).waitFor();
  await page.getByText('That is all.').waitFor();
  expect(await page.getByText('Searched back to').count()).toBe(0);
});

test('a search ends when another begins', async () => {
  const page = await visit(server, '#/jobs');
  await page.getByRole('rowheader').first().waitFor();
  const rare = (url: URL) => url.searchParams.get('tenant') === 'rare';
  await hold(page, 1, rare);
  await page.getByLabel('Tenant').fill('rare');
  await page.getByLabel('Tenant').press('Enter');
  await page.getByText('Searched back to').waitFor();
  await page.getByText('Searching…').waitFor();
  const ended = page.waitForEvent('requestfailed', (request) => rare(new URL(request.url())));
  await page.getByLabel('Tenant').fill('tenant-7');
  await page.getByLabel('Tenant').press('Enter');
  await ended;
  const rows = page.getByRole('row').filter({ has: page.getByRole('rowheader') });
  await until('50 rows', async () => (await rows.count()) === 50);
});

test('a page that could not be had is asked for again, once', async () => {
  const page = await visit(server, '#/jobs');
  tolerate(page, /ERR_FAILED/);
  const rows = page.getByRole('row').filter({ has: page.getByRole('rowheader') });
  await rows.first().waitFor();
  await page.route(/\/v1\/jobs\?cursor/, (route) => route.abort(), { times: 1 });
  await page.getByRole('button', { name: 'More' }).click();
  await page.getByText('The server does not answer.').waitFor();
  expect(await rows.count()).toBe(50);
  await page.getByRole('button', { name: 'Try again' }).click();
  await until('100 rows', async () => (await rows.count()) === 100);
});

test('the overview and the lane show the number, not the jobs', async () => {
  const page = await visit(server);
  const elements = () => page.evaluate(() => document.querySelectorAll('*').length);
  await page.getByText('100,000 waiting').waitFor();
  expect(await elements()).toBeLessThan(1500);
  await page.goto(`${server.url}/#/lanes/work`);
  await page.getByText('100,000 / 1M').waitFor();
  expect(await elements()).toBeLessThan(1500);
});

test('what waits is counted before it is cancelled', async () => {
  const page = await visit(server, '#/jobs?tenant=tenant-7');
  await page.getByRole('button', { name: 'Cancel all that match…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('1,000 unfinished jobs match.').waitFor();
});

test('counting says how far it is, and ends when its dialog is closed', async () => {
  const page = await visit(server, '#/jobs?lane=work');
  const counting = (url: URL) => url.searchParams.has('dryRun');
  await hold(page, 1, counting);
  await page.getByRole('button', { name: 'Cancel all that match…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('Counting… 1,000 so far').waitFor();
  const ended = page.waitForEvent('requestfailed', (request) => counting(new URL(request.url())));
  await page.keyboard.press('Escape');
  await ended;
});

test('what is cancelled in parts says how far it is and how fast, and can be stopped', async () => {
  const page = await visit(server, '#/jobs?lane=work');
  const cancelling = (url: URL, method: string) => method === 'DELETE' && !url.searchParams.has('dryRun');
  const { held } = await hold(page, 1, cancelling);
  await page.getByRole('button', { name: 'Cancel all that match…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText(`${JOBS.toLocaleString('en')} unfinished jobs match.`).waitFor();
  await dialog.getByRole('button', { name: 'Cancel all that match' }).click();
  await dialog.getByText(/^1,000 of 100,000 · .*\/s · done in /).waitFor();
  await dialog.getByRole('button', { name: 'Stop' }).click();
  await dialog.getByRole('button', { name: 'Stopping…' }).waitFor();
  await (await held).continue();
  await page.getByRole('status').getByText('Stopped: 2,000 jobs cancelled.').waitFor();
  await dialog.waitFor({ state: 'detached' });
  const { queued } = await server.get<Lane>('/v1/lanes/work');
  expect(queued.normal).toBe(JOBS - 2 * BATCH);
});
