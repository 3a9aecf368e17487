/** The server ends and comes back under the page: the page says so, and goes on by itself. */

import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Lane } from '../src/lib/types';
import { Server } from './support/server';
import { byPath, upstream, type Upstream } from './support/upstream';
import { tolerate, useBrowser, visit } from './support/visit';

useBrowser();
let server: Server;
let third: Upstream;
beforeAll(async () => {
  third = await upstream(byPath);
  server = await Server.start(`[lanes.work]\nchain = ["third"]\n[upstreams.third]\nurl = "${third.url}"\n`);
  await server.post('/v1/lanes/work/pause');
  await server.enqueue('work', [{ request: { path: '/' } }]);
});
afterAll(async () => {
  await server?.stop();
  await third?.close();
});

test('says that the connection is lost, then goes on without a reload', async () => {
  const page = await visit(server, '#/lanes');
  tolerate(page, /ERR_(CONNECTION_\w+|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE|SOCKET_NOT_CONNECTED)/);
  const connection = page.getByRole('banner').getByRole('status');
  await connection.getByText('live').waitFor();
  const row = page.getByRole('row').filter({ has: page.getByRole('rowheader', { name: 'work' }) });
  await row.getByRole('cell', { name: '1', exact: true }).waitFor();
  await page.evaluate(() => document.body.setAttribute('data-loaded', 'once'));

  await server.kill();
  await page.getByRole('alert').getByText('Connection lost, trying again…').waitFor();
  await connection.getByText('Connection lost').waitFor();
  await row.getByRole('cell', { name: '1', exact: true }).waitFor();
  await page.getByRole('button', { name: 'Resume: work' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Resume' }).click();
  await dialog.getByText('That did not work: The server does not answer.').waitFor();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });

  await server.restart();
  await connection.getByText('live').waitFor();
  await page.getByRole('alert').waitFor({ state: 'detached' });
  await server.enqueue('work', [{ request: { path: '/' } }, { request: { path: '/' } }]);
  await row.getByRole('cell', { name: '3', exact: true }).waitFor();
  expect(await page.evaluate(() => document.body.getAttribute('data-loaded'))).toBe('once');
});

test('the sentence is read out when things become different, not when a count changes', async () => {
  const page = await visit(server);
  const says = (text: RegExp) => page.getByRole('heading', { level: 1, name: text }).waitFor();
  const announced = page.getByRole('main').getByRole('status');
  const { queued } = await server.get<Lane>('/v1/lanes/work');
  await says(new RegExp(`is paused: ${queued.normal} jobs? wait`));
  await server.enqueue('work', [{ request: { path: '/' } }]);
  await says(new RegExp(`is paused: ${queued.normal + 1} jobs wait`));
  expect(await announced.innerText()).toBe('');
  await server.post('/v1/lanes/work/resume');
  await page.getByRole('main').getByRole('status').filter({ hasText: 'Everything flows' }).waitFor();
});
