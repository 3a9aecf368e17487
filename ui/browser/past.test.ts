/** What has happened: breakers, alerts, evictions, quotes, balances; and taking a job from the page. */

import type { Locator } from 'playwright-core';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import type { Alerts, History, Job, Lane, Policy, UpstreamPoint, Why } from '../src/lib/types';
import { Server } from './support/server';
import { run } from './support/shell';
import { byPath, upstream, type Upstream } from './support/upstream';
import { until } from './support/until';
import { wholeSeconds } from '../src/lib/format';
import { fullInSec } from '../src/lib/policies';
import { useBrowser, visit } from './support/visit';

useBrowser();
let third: Upstream;
let server: Server;
let letters: string[];
const headers = { 'x-a': "it's", accept: 'text/plain', 'x-api-key': 'secret' };

beforeAll(async () => {
  third = await upstream(byPath);
  server = await Server.start(`
[alerts]
for = "0s"
[lanes.render]
chain = ["moody"]
retry = { attempts = 1 }
[upstreams.moody]
url = "${third.url}"
breaker = { failures = 1, open_for = "1h" }
[lanes.tight]
chain = ["third"]
capacity = 1
[upstreams.third]
url = "${third.url}"
[lanes.fair]
chain = ["third"]
tenant_rate = { acme = "1/h" }
[lanes.proxy]
mode = "direct"
chain = ["limited"]
[upstreams.limited]
url = "${third.url}"
[[upstreams.limited.policies]]
name = "PER_CLIENT"
scope = "header:x-client"
capacity = 100
refill = "60/h"
cost = { "404" = 150, default = 10 }
credit = { payment = 7 }
correlation = "header:x-id"
`);
  letters = await server.enqueue('render', [{ tenant: 'acme', request: { path: '/503', headers, body: { text: "it's" } } }]);
  const breaker = (list: { name: string }[]) => list.some(({ name }) => name === 'breaker_open');
  await server.until<Alerts>('/v1/alerts', ({ alerts }) => breaker(alerts));
  await server.post('/v1/breakers/moody/reset');
  await server.until<Alerts>('/v1/alerts', ({ alerts, recent }) => !breaker(alerts) && breaker(recent));
  await server.enqueue('tight', [{ request: { path: '/' } }]);
  await server.until<Lane>('/v1/lanes/tight', ({ totals }) => totals.completed === 1);
  await server.post('/v1/lanes/tight/pause');
  await server.enqueue('tight', [{ request: { path: '/' } }]);
  await server.enqueue('tight', [{ request: { path: '/' } }]).catch(() => {});
  await server.until<Lane>('/v1/lanes/tight', ({ totals }) => totals.refused === 1);
});
afterAll(async () => {
  await server?.stop();
  await third?.close();
});

const job = (tenant: string) => ({ tenant, request: { path: '/' } });
const words = async (locator: Locator) => (await locator.innerText()).replace(/\s+/g, ' ').trim();

test('when a breaker opened and closed', async () => {
  const { transitions = [] } = await server.get<History<UpstreamPoint>>('/v1/history?minutes=15&upstream=moody');
  expect(transitions.map(({ event }) => event)).toEqual(expect.arrayContaining(['open', 'closed']));
  const page = await visit(server, '#/upstreams/moody');
  const items = page.getByRole('region', { name: 'Breaker, cooldown and Retry-After' }).getByRole('listitem');
  await items.filter({ hasText: 'breaker: opened until' }).waitFor();
  await items.filter({ hasText: 'breaker: closed' }).waitFor();
  expect(await items.count()).toBe(transitions.length);
  const times = await items.evaluateAll((list) => list.map((item) => item.querySelector('time')?.dateTime ?? ''));
  expect(times).toEqual([...times].sort().reverse());
});

test('the codes of an upstream follow what happens', async () => {
  const lane = '[lanes.work]\nchain = ["third"]\nretry = { attempts = 1 }\n';
  const fresh = await Server.start(`${lane}[upstreams.third]\nurl = "${third.url}"\n`);
  onTestFinished(() => fresh.stop());
  const page = await visit(fresh, '#/upstreams/third');
  const codes = page.getByRole('region', { name: 'Codes and what retries led to' });
  await codes.getByText('No call has failed yet.').waitFor();
  await fresh.enqueue('work', [{ request: { path: '/422' } }]);
  await codes.getByRole('rowheader', { name: '422' }).waitFor();
});

test('alerts that are over', async () => {
  const { recent } = await server.get<Alerts>('/v1/alerts');
  const page = await visit(server, '#/alerts');
  const rows = page.getByRole('region', { name: 'History' }).getByRole('row');
  await rows.filter({ hasText: 'The breaker of moody is open.' }).first().waitFor();
  expect(await rows.count()).toBe(recent.length + 1);
  const [one] = recent;
  expect(await rows.nth(1).locator('time').last().getAttribute('datetime')).toBe(new Date(one?.resolvedAt ?? 0).toISOString());
});

test('quotes and evictions of a lane', async () => {
  const lane = await server.until<Lane>('/v1/lanes/tight', ({ quotes }) => (quotes?.count ?? 0) > 0);
  const page = await visit(server, '#/lanes/tight');
  const stat = (name: string) => page.locator('.stat', { has: page.getByRole('heading', { name, exact: true }) });
  await stat('Evictions').waitFor();
  expect(await words(stat('Evictions'))).toContain('1 0 expired · 0 preempted · 1 refused');
  expect(await words(stat('Quoted against real start'))).toContain(`${lane.quotes?.count} job`);
});

test('balances: what is owed, when a bucket is empty and when it is full', async () => {
  const call = (client: string, path = '') => fetch(`${server.url}/proxy/proxy/${path}`, { headers: { 'x-client': client } });
  await call('owes', '404');
  await call('spends');
  const page = await visit(server, '#/policies');
  const rows = page.getByRole('row').filter({ has: page.getByRole('rowheader') });
  const said = (seconds: number) => wholeSeconds(seconds).replace(/\s+/g, ' ');
  // What was spent in the last minute changes meanwhile.
  const found = await until('both as the API says', async () => {
    const { policies } = await server.get<{ policies: Policy[] }>('/v1/policies');
    const scoped = policies.filter(({ scope }) => scope !== 'upstream').sort((a, b) => a.availableTokens - b.availableTokens);
    const [debt, some] = scoped;
    if (!debt || some?.emptyInSec === undefined || (await rows.count()) < 2) return undefined;
    const wanted = [
      `${-debt.availableTokens} in debt / 100 ${debt.spentLastMinute} now ${said(fullInSec(debt))}`,
      `${some.availableTokens} / 100 ${some.spentLastMinute} ${said(some.emptyInSec)} ${said(fullInSec(some))}`,
    ];
    const shown = [await words(rows.nth(0)), await words(rows.nth(1))];
    return wanted.every((text, i) => shown[i]?.includes(text)) && { debt, some };
  });
  expect(found.debt.availableTokens).toBeLessThan(0);
  expect(found.some.availableTokens).toBeGreaterThan(0);
});

test('what was given back to a bucket', async () => {
  const headers = { 'x-client': 'pays', 'x-id': 'E1' };
  await fetch(`${server.url}/proxy/proxy/`, { headers });
  await server.post('/v1/policies/credits', { event: 'payment', correlationId: 'E1' });
  const page = await visit(server, '#/policies?scope=pays');
  const row = page.getByRole('row').filter({ has: page.getByRole('rowheader') });
  // It is forgotten after a minute.
  await row.getByText('7 given back').waitFor();
  const { policies } = await server.get<{ policies: Policy[] }>('/v1/policies?scope=pays');
  expect(policies.map(({ creditedLastMinute }) => creditedLastMinute)).toEqual([7]);
  expect(await words(row)).toContain(`${policies[0]?.availableTokens} / 100`);
});

test('a job that waits for a limit of its tenant says whose it is and until when', async () => {
  const [first, second] = await server.enqueue('fair', [job('acme'), job('acme')]);
  await server.until<Job>(`/v1/jobs/${first}`, ({ status }) => status === 'completed');
  const why = await server.until<Why>(`/v1/jobs/${second}/why`, ({ reason }) => reason === 'rate_limit');
  expect(why.tenant).toBe('acme');
  const page = await visit(server, `#/jobs/${second}`);
  const card = page.getByRole('region', { name: 'Why it waits' });
  await card.getByRole('link', { name: 'Tenant acme' }).waitFor();
  const opens = await card.locator('p time').getAttribute('datetime');
  expect(opens).toBe(why.until);
  expect(await words(card.getByRole('listitem'))).toMatch(/^Tenant acme rate limit 0 \/ 1 tokens opens in/);
});

test('a job is copied as a command that sends it again', async () => {
  const letter = await server.get<Job>(`/v1/jobs/${letters[0]}`);
  const page = await visit(server, `#/jobs/${letters[0]}`);
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.getByRole('button', { name: 'Copy as curl' }).click();
  await page.getByText('Copied').first().waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  expect(copied).toContain(`curl -i -X POST ${server.url}/v1/lanes/render/jobs`);
  const answer = await run(copied);
  expect(answer).toMatch(/^HTTP\/1.1 202 /);
  await page.getByText('Masked headers are left out.').waitFor();
  const { jobId } = JSON.parse(answer.split('\r\n\r\n').at(-1) ?? '') as { jobId: string };
  const again = await server.get<Job>(`/v1/jobs/${jobId}`);
  const { 'x-api-key': _, ...sent } = letter.request?.headers ?? {};
  expect(again).toMatchObject({ tenant: letter.tenant, request: { path: '/503', body: { text: "it's" } } });
  expect(again.request?.headers).toEqual(sent);
});

test('a job that failed for good is replayed from its page', async () => {
  const page = await visit(server, `#/jobs/${letters[0]}`);
  await page.getByRole('button', { name: 'Replay…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByRole('button', { name: 'Replay' }).click();
  const link = page.getByRole('link', { name: 'Open the job' });
  await link.waitFor();
  const id = (await link.getAttribute('href'))?.split('/').at(-1) ?? '';
  expect(id).not.toBe(letters[0]);
  expect((await server.get<Job>(`/v1/jobs/${id}`)).request?.path).toBe('/503');
});
