/** Every action asks first, says what it will do and to how much, does it, and is audited. */

import type { Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { DeadLetter, Job, Lane, Replay, Upstream } from '../src/lib/types';
import { Server } from './support/server';
import { upstream, type Upstream as Third } from './support/upstream';
import { signIn, tolerate, useBrowser, visit } from './support/visit';

const OPERATOR = 'operator-0123456789abcdef';
const ADMIN = 'admin-0123456789abcdef';

useBrowser();
let server: Server;
let third: Third;
/** What the upstream answers everything but `/works` with. */
let answers = 422;

beforeAll(async () => {
  third = await upstream((request, response) => {
    response.writeHead(request.url === '/works' ? 200 : answers, { 'content-type': 'application/json' }).end('{}');
  });
  const key = (role: string, secret: string) => `[[auth.keys]]\nname = "${role}"\nrole = "${role}"\nkey = "${secret}"\n`;
  server = await Server.start(
    `${key('operator', OPERATOR)}${key('admin', ADMIN)}
[lanes.work]
chain = ["third"]
[lanes.mail]
chain = ["third"]
retry = { attempts = 1 }
[upstreams.third]
url = "${third.url}"
[lanes.render]
chain = ["moody"]
[upstreams.moody]
url = "${third.url}"
breaker = { failures = 1, open_for = "1h" }
[lanes.page]
chain = ["hot"]
[upstreams.hot]
url = "${third.url}"
cooldown = ["1h"]
`,
    ADMIN,
  );
});
afterAll(async () => {
  await server?.stop();
  await third?.close();
});
beforeEach(() => {
  answers = 422;
});

async function open(hash: string): Promise<Page> {
  const page = await visit(server, hash);
  await signIn(page, OPERATOR);
  return page;
}

const job = (tenant: string, path = '/') => ({ tenant, request: { path } });

/** Jobs that wait, because the lane is paused. */
async function waiting(...tenants: string[]): Promise<string[]> {
  await server.post('/v1/lanes/work/pause');
  return server.enqueue(
    'work',
    tenants.map((tenant) => job(tenant, '/works')),
  );
}

/** Dead letters of `mail`, one for each tenant. */
async function letters(...tenants: string[]): Promise<string[]> {
  const jobs = await server.enqueue(
    'mail',
    tenants.map((tenant) => job(tenant)),
  );
  for (const id of jobs) await server.until<Job>(`/v1/jobs/${id}`, ({ status }) => status === 'failed');
  return jobs;
}

const audited = (audit: string, fields: object = {}, message = '') =>
  server.logged(message, { audit, by: 'operator', ...fields });
const lane = (name: string) => server.get<Lane>(`/v1/lanes/${name}`);
const said = (page: Page, text: string) => page.getByRole('status').getByText(text).waitFor();

describe('lanes', () => {
  test('pause, and resume', async () => {
    const page = await open('#/lanes');
    await page.getByRole('button', { name: 'Pause: mail' }).click();
    const dialog = page.getByRole('dialog', { name: 'Pause mail?' });
    await dialog.getByText('No job of mail is started until it is resumed.').waitFor();
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    await dialog.waitFor({ state: 'detached' });
    expect((await lane('mail')).paused, 'cancelled').toBe(false);

    await page.getByRole('button', { name: 'Pause: mail' }).click();
    await dialog.getByRole('button', { name: 'Pause' }).click();
    await said(page, 'mail is paused.');
    expect((await lane('mail')).paused).toBe(true);
    await audited('pause', { lane: 'mail' });

    await server.enqueue('mail', [job('acme', '/works'), job('acme', '/works')]);
    await page.getByRole('row', { name: /mail 2/ }).waitFor();
    await page.getByRole('button', { name: 'Resume: mail' }).click();
    const again = page.getByRole('dialog', { name: 'Resume mail?' });
    await again.getByText('2 wait now.').waitFor();
    await again.getByRole('button', { name: 'Resume' }).click();
    await said(page, 'mail is resumed.');
    await audited('resume', { lane: 'mail' });
    await page.getByRole('button', { name: 'Pause: mail' }).waitFor();
    await server.until<Lane>('/v1/lanes/mail', ({ queued }) => queued.normal === 0);
  });

  test('cancel everything that waits', async () => {
    await waiting('acme', 'globex', 'globex');
    const page = await open('#/lanes/work');
    await page.getByRole('button', { name: 'Cancel waiting jobs…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Cancel all waiting jobs of work?' });
    await dialog.getByText('3 unfinished jobs match.').waitFor();
    await dialog.getByRole('button', { name: 'Cancel waiting jobs' }).click();
    await said(page, '3 jobs cancelled.');
    expect((await lane('work')).queued).toEqual({ high: 0, normal: 0, low: 0 });
    await audited('cancel', { jobs: 3 });
  });
});

test('reset the gates of an upstream', async () => {
  answers = 503;
  await server.enqueue('render', [job('acme')]);
  await server.until<{ state: string }>('/v1/breakers/moody', ({ state }) => state === 'open');
  answers = 200;
  const page = await open('#/upstreams/moody');
  await page.getByText('breaker open').waitFor();
  await page.getByRole('button', { name: 'Reset gates…' }).click();
  const dialog = page.getByRole('dialog', { name: 'Reset moody?' });
  await dialog.getByText('Closes the breaker of moody and clears its cooldown and Retry-After.').waitFor();
  await dialog.getByRole('button', { name: 'Reset gates' }).click();
  await said(page, 'moody is reset.');
  await audited('reset', { upstream: 'moody' });
  await page.getByText('no failures').waitFor();
  expect(await server.get('/v1/breakers/moody')).toMatchObject({ state: 'closed' });
});

test('reset the cooldown of an upstream without a breaker', async () => {
  answers = 503;
  await server.enqueue('page', [job('acme')]);
  const cools = ({ gates }: Upstream) => gates.some((gate) => gate.reason === 'cooldown' && !gate.open);
  await server.until<Upstream>('/v1/upstreams/hot', cools);
  answers = 200;
  const page = await open('#/upstreams/hot');
  await page.getByText('opens in').first().waitFor();
  await page.getByRole('button', { name: 'Reset gates…' }).click();
  await page.getByRole('dialog', { name: 'Reset hot?' }).getByRole('button', { name: 'Reset gates' }).click();
  await said(page, 'hot is reset.');
  await audited('reset', { upstream: 'hot' });
  await server.until<Upstream>('/v1/upstreams/hot', (one) => !cools(one));
});

describe('jobs', () => {
  test('cancel one', async () => {
    const [id] = await waiting('acme');
    const page = await open(`#/jobs/${id}`);
    await page.getByRole('button', { name: 'Cancel…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Cancel this job?' });
    await dialog.getByText(`${id} ends as cancelled and is not started.`).waitFor();
    await dialog.getByRole('button', { name: 'Cancel', exact: true }).last().click();
    await said(page, 'The job is cancelled.');
    expect(await server.get(`/v1/jobs/${id}`)).toMatchObject({ status: 'cancelled' });
    await audited('cancel', { jobId: id });
    await page.locator('h1 + .pill', { hasText: 'cancelled' }).waitFor();
    expect(await page.getByRole('button', { name: 'Cancel…' }).count(), 'it has ended').toBe(0);
  });

  test('cancel all that match, after a preview', async () => {
    const jobs = await waiting('acme', 'initech', 'initech', 'initech');
    const page = await open('#/jobs');
    const all = page.getByRole('button', { name: 'Cancel all that match…' });
    expect(await all.isDisabled(), 'everything is not a choice').toBe(true);
    await page.getByRole('searchbox', { name: 'Tenant' }).fill('initech');
    await page.getByRole('searchbox', { name: 'Tenant' }).press('Enter');
    await all.click();
    const dialog = page.getByRole('dialog', { name: 'Cancel all jobs that match?' });
    await dialog.getByText('3 unfinished jobs match.').waitFor();
    await dialog.getByText('Tenant: initech').waitFor();
    await dialog.getByRole('button', { name: 'Cancel all that match' }).click();
    await said(page, '3 jobs cancelled.');
    await audited('cancel', { jobs: 3, filter: 'tenant=initech' });
    expect(await server.get(`/v1/jobs/${jobs[0]}`), 'of another tenant').toMatchObject({ status: 'queued' });
    expect(await server.get(`/v1/jobs/${jobs[1]}`)).toMatchObject({ status: 'cancelled' });
  });

  test('what the server refuses is said, and nothing is lost', async () => {
    const [id] = await waiting('acme');
    const page = await open(`#/jobs/${id}`);
    tolerate(page, /409/);
    await page.getByRole('button', { name: 'Cancel…' }).click();
    await server.call('DELETE', `/v1/jobs/${id}`);
    const dialog = page.getByRole('dialog');
    await dialog.getByRole('button', { name: 'Cancel', exact: true }).last().click();
    await dialog.getByRole('alert').getByText('That did not work:').waitFor();
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
  });
});

describe('dead letters', () => {
  test('replay one', async () => {
    const [id] = await letters('acme');
    answers = 200;
    const page = await open(`#/dead-letters/${id}`);
    await page.getByRole('button', { name: 'Replay…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Replay this dead letter?' });
    await dialog.getByText(`${id}`).waitFor();
    await dialog.getByRole('button', { name: 'Replay' }).click();
    await said(page, 'Enqueued again.');
    // Before the message goes away.
    await page.getByRole('link', { name: 'Open the job' }).click();
    const { jobId } = await audited('replay', { replayOf: id, edited: false });
    await page.getByRole('heading', { level: 1, name: String(jobId) }).waitFor();
    await server.until<Job>(`/v1/jobs/${jobId}`, ({ status }) => status === 'completed');
  });

  test('edit one and replay it', async () => {
    const [id] = await letters('acme');
    const page = await open(`#/dead-letters/${id}`);
    await page.getByRole('button', { name: 'Edit' }).click();
    const draft = page.getByRole('textbox', { name: 'What was to be sent' });
    const replay = page.getByRole('button', { name: 'Replay with changes…' });
    expect(await replay.isDisabled(), 'nothing is changed').toBe(true);
    await draft.fill('{"request": ');
    await page.getByText('This is not valid JSON:').waitFor();
    const letter = await server.get<DeadLetter>(`/v1/dead-letters/${id}`);
    const data = letter.originalData as { request: object };
    await draft.fill(JSON.stringify({ ...data, request: { ...data.request, path: '/works' } }));
    const patch = { request: { path: '/works' } };
    expect(JSON.parse(await page.getByRole('group', { name: 'Changes (merge patch)' }).innerText())).toEqual(patch);
    await replay.click();
    const dialog = page.getByRole('dialog', { name: 'Replay this dead letter?' });
    expect(JSON.parse(await dialog.locator('pre').innerText())).toEqual(patch);
    await dialog.getByRole('button', { name: 'Replay' }).click();
    const { jobId } = await audited('replay', { replayOf: id, edited: true });
    const done = await server.until<Job>(`/v1/jobs/${jobId}`, ({ status }) => status === 'completed');
    expect(done.request?.path).toBe('/works');
  });

  test('discard one', async () => {
    const [id] = await letters('acme');
    const page = await open(`#/dead-letters/${id}`);
    await page.getByRole('button', { name: 'Discard…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Discard this dead letter?' });
    await dialog.getByText('This cannot be undone.').waitFor();
    await dialog.getByRole('button', { name: 'Discard' }).click();
    await page.getByRole('heading', { level: 1, name: 'Dead letters' }).waitFor();
    await audited('purge', { jobId: id });
    await expect(server.get(`/v1/dead-letters/${id}`)).rejects.toThrow('404');
  });

  test('replay a selection, after a preview, and watch it', async () => {
    const ids = await letters('umbrella', 'umbrella', 'stark');
    answers = 200;
    await server.post('/v1/lanes/mail/pause');
    const page = await open('#/dead-letters?tenant=umbrella');
    await page.getByRole('heading', { level: 1, name: 'Dead letters 2' }).waitFor();
    await page.getByRole('button', { name: 'Replay all that match…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Replay all that match?' });
    await dialog.getByText('2 dead letters match.').waitFor();
    await dialog.getByText('Tenant: umbrella').waitFor();
    await dialog.getByRole('button', { name: 'Replay' }).click();
    await said(page, 'The replay has started.');
    await audited('replay', { letters: 2 });
    const progress = page.getByRole('region', { name: 'Replays' }).getByRole('listitem').filter({ hasText: 'umbrella' });
    await progress.getByText('running').waitFor();
    await server.post('/v1/lanes/mail/resume');
    await progress.getByText('2 of 2 · 2 succeeded').waitFor();
    await progress.getByText('done').waitFor();
    await page.getByText('No dead letter matches.').waitFor();
    expect(await server.get(`/v1/dead-letters/${ids[2]}`), 'of another tenant').toMatchObject({ companyId: 'stark' });
  });

  test('replay and discard those that are selected, one after the other', async () => {
    const ids = await letters('tyrell', 'tyrell', 'tyrell', 'tyrell');
    answers = 200;
    const page = await open('#/dead-letters?tenant=tyrell');
    const boxes = page.getByRole('checkbox', { name: /^Select / });
    await boxes.nth(3).waitFor();
    const replay = page.getByRole('button', { name: 'Replay selected…' });
    expect(await replay.isDisabled(), 'nothing is selected').toBe(true);
    const rows = page.getByRole('row').filter({ has: boxes });
    const chosen = await rows.evaluateAll((list) => list.map((row) => (row as HTMLElement).dataset.letter ?? ''));
    await boxes.nth(0).check();
    // By keyboard: the row that has the focus.
    await rows.nth(1).getByRole('link').first().focus();
    await page.keyboard.press('x');
    await page.getByText('2 selected').waitFor();
    await replay.click();
    const dialog = page.getByRole('dialog', { name: 'Replay the selected dead letters?' });
    await dialog.getByText('2 dead letters are selected.').waitFor();
    await dialog.getByRole('button', { name: 'Replay selected' }).click();
    await said(page, '2 dead letters enqueued again.');
    for (const id of chosen.slice(0, 2)) await audited('replay', { replayOf: id });
    await server.until<{ deadLetters: unknown[] }>('/v1/dead-letters?tenant=tyrell', (all) => all.deadLetters.length === 2);

    await page.reload();
    await boxes.nth(1).waitFor();
    await boxes.nth(0).check();
    await page.getByRole('button', { name: 'Discard selected…' }).click();
    const discard = page.getByRole('dialog', { name: 'Discard the selected dead letters?' });
    await discard.getByText('1 dead letter is selected.').waitFor();
    await discard.getByRole('button', { name: 'Discard selected' }).click();
    await said(page, '1 dead letter purged.');
    const left = await server.get<{ deadLetters: DeadLetter[] }>('/v1/dead-letters?tenant=tyrell');
    expect(left.deadLetters.length).toBe(1);
    expect(ids).toContain(left.deadLetters[0]?.jobId);
    expect(chosen.slice(0, 2)).not.toContain(left.deadLetters[0]?.jobId);
  });

  test('a job whose letter is gone cannot be replayed from its page', async () => {
    const [kept, gone] = await letters('acme', 'acme');
    await server.call('DELETE', `/v1/dead-letters/${gone}`);
    const page = await open(`#/jobs/${kept}`);
    const replay = page.getByRole('button', { name: 'Replay…' });
    await replay.waitFor();
    await page.goto(`${server.url}/#/jobs/${gone}`);
    await page.getByRole('heading', { level: 1, name: gone! }).waitFor();
    await page.getByRole('region', { name: 'Timeline' }).waitFor();
    expect(await replay.count()).toBe(0);
  });

  test('stop a replay', async () => {
    await letters('wayne');
    await server.post('/v1/lanes/mail/pause');
    const started = await server.post<Replay>('/v1/dead-letters/replay', { filter: { tenant: 'wayne' }, dryRun: false });
    const page = await open('#/dead-letters');
    const one = page.getByRole('region', { name: 'Replays' }).getByRole('listitem').filter({ hasText: 'wayne' });
    await one.getByText('running').waitFor();
    await one.getByRole('button', { name: 'Stop…' }).click();
    const dialog = page.getByRole('dialog', { name: 'Stop this replay?' });
    await dialog.getByRole('button', { name: 'Stop' }).click();
    await said(page, 'The replay is stopped.');
    await one.getByText('stopped').waitFor();
    await audited('stop_replay', { replayId: started.replayId });
    await server.post('/v1/lanes/mail/resume');
  });

  test('purge a selection, after a preview', async () => {
    await letters('cyberdyne', 'cyberdyne');
    const page = await open('#/dead-letters');
    const purge = page.getByRole('button', { name: 'Purge all that match…' });
    await page.getByRole('searchbox', { name: 'Tenant' }).waitFor();
    expect(await purge.isDisabled(), 'everything is not a choice').toBe(true);
    await page.getByRole('searchbox', { name: 'Tenant' }).fill('cyberdyne');
    await page.getByRole('searchbox', { name: 'Tenant' }).press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Dead letters 2' }).waitFor();
    await purge.click();
    const dialog = page.getByRole('dialog', { name: 'Purge all that match?' });
    await dialog.getByText('2 dead letters match.').waitFor();
    await dialog.getByText('Tenant: cyberdyne').waitFor();
    await dialog.getByRole('button', { name: 'Purge all that match' }).click();
    await said(page, '2 dead letters purged.');
    await audited('purge', { letters: 2 });
    const left = await server.get<{ deadLetters: DeadLetter[] }>('/v1/dead-letters?tenant=cyberdyne');
    expect(left.deadLetters).toEqual([]);
  });
});
