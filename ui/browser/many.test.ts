/** 100,000 jobs wait: the pages are no larger than with a hundred. */

import { afterAll, beforeAll, expect, test } from 'vitest';
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
      tenant: `tenant-${i % 100}`,
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
  await dialog.getByText('1,000 jobs have not ended and match.').waitFor();
});
