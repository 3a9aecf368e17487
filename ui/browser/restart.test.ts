/** The server ends and comes back under the page: the page says so, and goes on by itself. */

import { afterAll, beforeAll, expect, test } from 'vitest';
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
