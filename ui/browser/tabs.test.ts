/** Many tabs of one browser share one stream: HTTP/1.1 allows six connections to a host, and each tab needs one now and then. */

import type { BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Server } from './support/server';
import { byPath, upstream, type Upstream } from './support/upstream';
import { signIn, tolerate, useBrowser, visit } from './support/visit';

const TABS = 8;
const secret = (name: string) => `${name}-0123456789abcdef`;
const key = (name: string) => `[[auth.keys]]\nname = "${name}"\nrole = "admin"\nkey = "${secret(name)}"\n`;

useBrowser();
let third: Upstream;
let server: Server;
let guarded: Server;
beforeAll(async () => {
  third = await upstream(byPath);
  const lane = `[lanes.work]\nchain = ["third"]\n[upstreams.third]\nurl = "${third.url}"\n`;
  server = await Server.start(lane);
  guarded = await Server.start(`${key('root')}${lane}`, secret('root'));
  await server.post('/v1/lanes/work/pause');
});
afterAll(async () => {
  await Promise.all([server?.stop(), guarded?.stop()]);
  await third?.close();
});

/** The other tabs of the browser. */
async function open(context: BrowserContext, url: string, many: number): Promise<Page[]> {
  const tabs: Page[] = [];
  for (let i = 0; i < many; i++) {
    const page = await context.newPage();
    await page.goto(url);
    tabs.push(page);
  }
  return tabs;
}

const says = (tabs: Page[], text: string) =>
  Promise.all(tabs.map((tab) => tab.getByRole('banner').getByRole('status').getByText(text).waitFor()));
const shows = (tabs: Page[], waiting: number) =>
  Promise.all(
    tabs.map((tab) =>
      tab
        .getByRole('row')
        .filter({ has: tab.getByRole('rowheader', { name: 'work' }) })
        .getByRole('cell', { name: String(waiting), exact: true })
        .first()
        .waitFor(),
    ),
  );
const job = { request: { path: '/' } };

test('eight tabs are live, without the one that was first too, and after a restart of the server', async () => {
  const first = await visit(server, '#/lanes');
  tolerate(first, /ERR_/);
  await says([first], 'live');
  const others = await open(first.context(), `${server.url}/#/lanes`, TABS - 1);
  await says([first, ...others], 'live');
  await server.enqueue('work', [job]);
  await shows([first, ...others], 1);

  await first.close();
  await server.enqueue('work', [job]);
  await shows(others, 2);

  await server.kill();
  await says(others, 'Connection lost');
  await server.restart();
  await says(others, 'live');
  await server.enqueue('work', [job]);
  await shows(others, 3);
});

test('who signs out in one tab has signed out in the others; who signs in sees again', async () => {
  const first = await visit(guarded, '#/lanes');
  tolerate(first, /401/);
  await signIn(first, secret('root'));
  const [second] = (await open(first.context(), `${guarded.url}/#/lanes`, 1)) as [Page];
  await says([first, second], 'live');
  await second.getByRole('button', { name: 'Sign out' }).click();
  for (const tab of [first, second]) await tab.getByRole('heading', { level: 1, name: 'Sign in' }).waitFor();
  expect(await first.context().cookies()).toEqual([]);
  await signIn(second, secret('root'));
  await says([second], 'live');
});
