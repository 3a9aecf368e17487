/** Every page shows what the API answers, and follows it without a reload. */

import type { Locator } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type {
  Alerts,
  DeadLetter,
  Fleet,
  History,
  Job,
  Lane,
  LanePoint,
  Policy,
  Status,
  Tenant,
  Upstream,
  Why,
} from '../src/lib/types';
import { Redis } from './support/redis';
import { Server } from './support/server';
import { town, type Town } from './support/town';
import { until } from './support/until';
import { useBrowser, visit } from './support/visit';

useBrowser();
let here: Town;
beforeAll(async () => {
  here = await town();
});
afterAll(() => here?.close());

/** The text as it is read: one space between words. */
const words = async (locator: Locator) => (await locator.innerText()).replace(/\s+/g, ' ').trim();
const waiting = ({ queued, pending }: Lane) => queued.high + queued.normal + queued.low + pending;

describe('the overview', () => {
  test('says how things are, as the status of the API', async () => {
    const { args, needs, ...status } = await here.server.get<Status>('/v1/status');
    expect(status.code).toBe('held');
    const page = await visit(here.server);
    const sentence = page.getByRole('heading', { level: 1, name: `${args.upstream} has no tokens left` });
    expect(await words(sentence)).toContain(`${args.waiting} jobs wait, the last starts at`);
    const listed = page.getByRole('region', { name: 'What needs you' }).getByRole('listitem');
    await listed.first().waitFor();
    expect(await listed.count()).toBe(needs.length);
    for (const need of needs) {
      const subject = String(need.args.lane ?? need.args.upstream);
      await listed.filter({ hasText: subject }).first().waitFor();
    }
  });

  test('has a canal for each lane and a lock for each upstream of its chain', async () => {
    const lanes = await here.server.get<Lane[]>('/v1/lanes');
    const page = await visit(here.server);
    const flow = page.getByRole('list', { name: 'Lanes, gates and upstreams' }).getByRole('listitem');
    await flow.first().waitFor();
    expect(await flow.count()).toBe(lanes.length);
    for (const lane of lanes) {
      const shown = await words(flow.filter({ has: page.getByRole('link', { name: lane.name, exact: true }) }).first());
      if (lane.mode !== 'direct') expect(shown).toContain(`${waiting(lane)} waiting`);
      for (const name of lane.chain ?? []) expect(shown).toContain(name);
    }
    expect(await words(flow.filter({ hasText: 'bureau' }))).toContain('0 / 5 tokens');
    expect(await words(flow.filter({ hasText: 'moody' }))).toMatch(/breaker(: .*)?, next probe in|cooldown(: .*)?, opens in/);
  });

  test('draws what the history has', async () => {
    const page = await visit(here.server, '#/?minutes=15');
    const drawn = async (chart: string, column: number) => {
      const card = page.getByRole('region', { name: chart, exact: true });
      await card.getByRole('img', { name: chart }).locator('canvas').waitFor();
      return card
        .locator('tbody tr')
        .evaluateAll(
          (rows, column) =>
            rows.map((row) => [
              row.querySelector('time')?.dateTime,
              row.querySelectorAll('td')[column]?.getAttribute('data-value') ?? null,
            ]),
          column,
        );
    };
    const wanted: [string, number, keyof LanePoint][] = [
      ['Waiting and in flight', 0, 'waiting'],
      ['Waiting and in flight', 1, 'processing'],
      ['Dropped and failed', 1, 'failed'],
    ];
    for (const [chart, column, name] of wanted) {
      // A minute may begin meanwhile, and the page asks again only when something happens.
      await until(`${chart}: ${name} as the API says`, async () => {
        const { points } = await here.server.get<History<LanePoint>>('/v1/history?minutes=15');
        const said = points.map((point) => [new Date(point.at).toISOString(), point[name] === null ? null : String(point[name])]);
        expect(said.some(([, value]) => Number(value) > 0)).toBe(true);
        if (JSON.stringify(await drawn(chart, column)) === JSON.stringify(said)) return true;
        await page.reload();
        return false;
      });
    }
    await page.getByRole('region', { name: 'Finished' }).getByRole('img').locator('canvas').waitFor();
    await page.getByRole('region', { name: 'Time to start' }).getByRole('img').locator('canvas').waitFor();
  });

  test('shows by default what the server has lived for', async () => {
    const page = await visit(here.server);
    const chosen = page.getByRole('group', { name: 'Range' }).locator('[aria-pressed=true]');
    const { startedAt } = await here.server.get<Fleet>('/v1/health');
    const minutes = [5, 15].find((range) => Date.now() - Date.parse(startedAt ?? '') < range * 60_000);
    await chosen.getByText(`${minutes}\u202fmin`).waitFor();
  });

  test('says times in UTC on hover, in the sentence too', async () => {
    const page = await visit(here.server);
    const time = page.getByRole('heading', { level: 1 }).locator('time');
    const { at, title } = await time.evaluate((one: HTMLTimeElement) => ({ at: one.dateTime, title: one.title }));
    expect(title).toBe(at.replace('T', ' ').replace('Z', ' UTC'));
    const lock = page.locator('.lock', { hasText: 'tokens' }).locator('time');
    expect(await lock.getAttribute('title')).toMatch(/ · \d{4}-\d\d-\d\d .* UTC$/);
  });

  test('follows what happens', async () => {
    const page = await visit(here.server);
    const feed = page.getByRole('region', { name: 'Just now' });
    await feed.getByText('Nothing has happened since this page was opened.').waitFor();
    const [job] = await here.server.enqueue('render', [{ tenant: 'umbrella', request: { path: '/' } }]);
    const link = feed.getByRole('link', { name: 'render · umbrella' }).first();
    await link.waitFor();
    expect(await link.getAttribute('href')).toBe(`#/jobs/${job}`);
    await feed.getByText('completed').first().waitFor();
  });
});

test('lanes', async () => {
  const lanes = await here.server.get<Lane[]>('/v1/lanes');
  const page = await visit(here.server, '#/lanes');
  for (const lane of lanes) {
    const row = page.getByRole('row').filter({ has: page.getByRole('rowheader', { name: lane.name, exact: true }) });
    const cells = row.getByRole('cell');
    await row.waitFor();
    expect(await words(cells.nth(0))).toBe(lane.mode === 'direct' ? '–' : String(waiting(lane)));
    expect(await words(cells.nth(4))).toBe(String(lane.processing));
    expect(await words(cells.nth(7))).toBe(String(lane.deadLetters));
    await row.getByRole('button', { name: `${lane.paused ? 'Resume' : 'Pause'}: ${lane.name}` }).waitFor();
  }
  const state = (lane: string) => words(page.getByRole('row').filter({ hasText: lane }).last().getByRole('cell').nth(3));
  expect(await state('score')).toContain('rate limit bureau');
  expect(await state('held')).toBe('paused');
});

test('a lane: how many wait, by level and by tenant, and for what', async () => {
  const page = await visit(here.server, '#/lanes/held');
  await page.getByRole('heading', { level: 1, name: 'held' }).waitFor();
  const levels = page.getByRole('region', { name: 'Waiting, by level' });
  await levels.getByRole('img', { name: '1 high, 4 normal, 1 low, 1 pending' }).waitFor();
  const tenants = page.getByRole('region', { name: 'Waiting, by tenant' });
  await tenants.getByRole('listitem').first().waitFor();
  expect(await words(tenants.getByRole('listitem').first())).toBe('acme 3');
  const stat = (name: string) => page.locator('.stat', { has: page.getByRole('heading', { name, exact: true }) });
  expect(await words(stat('Waiting'))).toContain('7 / 1M');

  await page.goto(`${here.server.url}/#/lanes/score`);
  const lane = await here.server.get<Lane>('/v1/lanes/score');
  await stat('Waiting').getByText('3 / 20').waitFor();
  expect(await words(stat('Will expire while waiting'))).toContain(String(lane.willExpire));
  expect(lane.willExpire).toBe(2);
  await page.getByRole('region', { name: 'Gates of the lane' }).getByText('0 / 4 slots').waitFor();
});

test('upstreams', async () => {
  const page = await visit(here.server, '#/upstreams');
  for (const upstream of await here.server.get<Upstream[]>('/v1/upstreams')) {
    const row = page.getByRole('row').filter({ has: page.getByRole('rowheader', { name: upstream.name, exact: true }) });
    await row.waitFor();
    expect(await words(row.getByRole('cell').nth(1))).toBe(String(upstream.inFlight));
    if (upstream.lastFailure) expect(await words(row)).toContain(upstream.lastFailure.code);
  }
  expect(await words(page.getByRole('row').filter({ hasText: 'bureau' }))).toContain('0 / 5 tokens, opens in');
  expect(await words(page.getByRole('row').filter({ hasText: 'hangs' }))).toContain('1 / 1 slots');
  expect(await words(page.getByRole('row').filter({ hasText: 'fast' }))).toContain('Keys: 2');
});

test('an upstream: its gates with level and countdown, its keys, its codes', async () => {
  const page = await visit(here.server, '#/upstreams/moody');
  const gates = page.getByRole('region', { name: 'Gates', exact: true });
  await gates.getByText('breaker open').waitFor();
  await gates.getByText(/next probe in (1\sh|5\d\smin)/).waitFor();
  await gates.getByText(/opens in (1\sh|5\d\smin)/).waitFor();
  await page.getByRole('region', { name: 'Codes and what retries led to' }).getByRole('rowheader', { name: '503' }).waitFor();
  await page.getByRole('region', { name: 'Used by' }).getByRole('link', { name: 'render' }).waitFor();

  await page.goto(`${here.server.url}/#/upstreams/fast`);
  const windows = page.getByRole('region', { name: 'Keys' }).getByText('/ 60 per min');
  // Calls leave the window after a minute: both may change meanwhile.
  await until('the keys as the API says', async () => {
    const { keys = [] } = await here.server.get<Upstream>('/v1/upstreams/fast');
    const wanted = keys.map(({ gates }) => `${gates[0]?.level} / 60 per min`);
    return wanted.length === 2 && String(await windows.allInnerTexts()) === String(wanted);
  });
});

describe('jobs', () => {
  test('the newest first, found by id, lane, tenant and status', async () => {
    const page = await visit(here.server, '#/jobs');
    const rows = page.getByRole('row').filter({ has: page.getByRole('rowheader') });
    await rows.first().waitFor();
    const { jobs } = await here.server.get<{ jobs: Job[] }>('/v1/jobs');
    expect(await rows.count()).toBe(jobs.length);
    const found = (many: number) => until(`${many} rows`, async () => (await rows.count()) === many);

    await page.getByLabel('Lane').selectOption('held');
    await found(7);
    await page.getByLabel('Tenant').fill('globex');
    await page.getByLabel('Tenant').press('Enter');
    await found(2);
    await page.getByLabel('Status').selectOption('pending');
    await page.getByText('No job matches.').waitFor();
    expect(page.url()).toContain('#/jobs?lane=held&tenant=globex&status=pending');
    await page.getByRole('button', { name: 'Clear' }).click();
    await found(jobs.length);
    await page.getByLabel('Id').fill(here.completed);
    await page.getByLabel('Id').press('Enter');
    await found(1);
    expect(await rows.getByRole('link').first().getAttribute('href')).toBe(`#/jobs/${here.completed}`);
  });

  test('between two times', async () => {
    const { jobs } = await here.server.get<{ jobs: Job[] }>('/v1/jobs');
    const page = await visit(here.server, '#/jobs');
    const rows = page.getByRole('row').filter({ has: page.getByRole('rowheader') });
    const found = (many: number) => until(`${many} rows`, async () => (await rows.count()) === many);
    await found(jobs.length);
    /** As the field wants it: the time of the reader, three hours behind UTC. */
    const local = (minutes: number) => new Date(Date.now() + (minutes - 180) * 60_000).toISOString().slice(0, 16);
    await page.getByLabel('From').fill(local(60));
    await page.getByText('No job matches.').waitFor();
    const since = new URLSearchParams(page.url().split('?')[1]).get('since') ?? '';
    expect(Date.parse(since) - Date.now(), 'in UTC in the address').toBeGreaterThan(58 * 60_000);
    await page.getByLabel('From').fill(local(-120));
    await found(jobs.length);
    await page.getByLabel('Until').fill(local(-60));
    await page.getByText('No job matches.').waitFor();
    await page.getByLabel('Until').fill(local(60));
    await found(jobs.length);
  });

  test('one that waits: why, what is before it, when it starts, whether it will make it', async () => {
    const [job, why] = await Promise.all([
      here.server.get<Job>(`/v1/jobs/${here.waiting}`),
      here.server.get<Why>(`/v1/jobs/${here.waiting}/why`),
    ]);
    expect([job.status, why.reason, why.willExpire]).toEqual(['queued', 'rate_limit', true]);
    const page = await visit(here.server, `#/jobs/${here.waiting}`);
    const card = page.getByRole('region', { name: 'Why it waits' });
    await card.getByText('The bucket has too few tokens.').waitFor();
    const shown = await words(card);
    expect(shown).toContain(`Before it about ${why.position} jobs`);
    expect(shown).toContain('Will it make it? No: it expires');
    expect(shown).toContain('0 / 5 tokens');
    // Read at once: the estimate moves by milliseconds.
    const starts = card.locator('dl time').first();
    const { at, text, title } = await starts.evaluate((time: HTMLTimeElement) => ({
      at: time.dateTime,
      text: time.innerText,
      title: time.title,
    }));
    expect(Math.abs(Date.parse(at) - Date.parse(why.eta ?? ''))).toBeLessThan(5000);
    const local = new Date(at).toLocaleTimeString('en-GB', { timeZone: 'America/Sao_Paulo' });
    expect(text.endsWith(local), 'in the time zone of the reader').toBe(true);
    expect(title, 'the same in UTC').toContain(at.slice(11, 19));
  });

  test('one that has ended: its timeline, what was sent and what came back', async () => {
    const job = await here.server.get<Job>(`/v1/jobs/${here.completed}`);
    const page = await visit(here.server, `#/jobs/${here.completed}`);
    await page.getByRole('heading', { level: 1, name: job.id }).waitFor();
    await page
      .getByRole('region', { name: 'Timeline' })
      .getByRole('img', { name: /^1\. bureau, .* answered$/ })
      .waitFor();
    expect(await words(page.getByRole('region', { name: 'Request' }))).toContain('GET /');
    const answer = await words(page.getByRole('region', { name: 'Answer' }));
    expect(answer).toContain('200');
    expect(answer).toContain('"done": true');
    const events = page.getByRole('region', { name: 'Events' }).getByRole('rowheader');
    expect(await events.allInnerTexts()).toEqual(['accepted', 'sent', 'completed']);
  });

  test('what is not there is said not to be', async () => {
    const page = await visit(here.server, '#/lanes');
    await page.goto(`${here.server.url}/#/lanes/nowhere`);
    await page.getByText('There is no lane “nowhere”.').waitFor();
    await page.goto(`${here.server.url}/#/nowhere`);
    await page.getByText('There is no such page.').waitFor();
  });
});

test('tenants: who waits, whose turn is next, shares against weights', async () => {
  const { tenants } = await here.server.get<{ tenants: Tenant[] }>('/v1/lanes/score/tenants');
  const page = await visit(here.server, '#/tenants?lane=score');
  for (const tenant of tenants) {
    const row = page.getByRole('row').filter({ has: page.getByRole('rowheader', { name: tenant.companyId }) });
    await row.waitFor();
    const cells = await row.getByRole('cell').allInnerTexts();
    expect([cells[0], cells[4], cells[6]]).toEqual([tenant.queued, tenant.weight, tenant.totalProcessed].map(String));
  }
  const next = tenants.filter((tenant) => tenant.next).map((tenant) => tenant.companyId);
  expect(next.length).toBe(1);
  expect(await page.getByText('Next turn').count()).toBe(1);
  expect(await words(page.getByRole('row').nth(1))).toContain(`${next[0]} Next turn`);
});

test('dead letters: grouped by code and by tenant, filtered by either', async () => {
  const page = await visit(here.server, '#/dead-letters');
  await page.getByRole('heading', { level: 1, name: 'Dead letters 5' }).waitFor();
  const codes = page.getByRole('region', { name: 'By code' });
  const tenants = page.getByRole('region', { name: 'By tenant' });
  await tenants.getByRole('listitem').first().waitFor();
  const shown = async (group: Locator) =>
    (await group.getByRole('listitem').allInnerTexts()).map((text) => text.replace(/\s+/g, ' '));
  expect(await shown(codes)).toEqual(['422 4', '500 1']);
  expect(await shown(tenants)).toEqual(['acme 3', 'globex 2']);
  const trends = (group: Locator) =>
    group.getByRole('img').evaluateAll((list) => list.map((image) => image.getAttribute('aria-label')));
  expect(await trends(codes)).toEqual(['Last 24 h: 4, last hour: 4', 'Last 24 h: 1, last hour: 1']);
  expect(await trends(tenants)).toEqual(['Last 24 h: 3, last hour: 3', 'Last 24 h: 2, last hour: 2']);
  await codes.getByRole('link', { name: '422' }).click();
  await page.getByRole('heading', { level: 1, name: 'Dead letters 4' }).waitFor();
  await tenants.getByRole('link', { name: 'globex' }).click();
  await page.getByRole('heading', { level: 1, name: 'Dead letters 1' }).waitFor();
  expect(page.url()).toContain('code=422');
  const list = page.getByRole('region', { name: 'Dead letters', exact: true });
  await until('one row', async () => (await list.getByRole('rowheader').count()) === 1);
});

test('a dead letter: why it failed and what was to be sent', async () => {
  const letter = await here.server.get<DeadLetter>(`/v1/dead-letters/${here.letter}`);
  const page = await visit(here.server, `#/dead-letters/${here.letter}`);
  const why = page.getByRole('region', { name: 'Why it failed' });
  await why.getByText(letter.lastFailureReason).waitFor();
  expect(await words(why)).toContain(`Tenant ${letter.companyId}`);
  expect(await words(page.getByRole('region', { name: 'What was to be sent' }))).toContain('"text": "hello"');
});

test('policies: the closest to empty first, identifiers hashed', async () => {
  const { policies } = await here.server.get<{ policies: Policy[] }>('/v1/policies?lowest=100');
  const page = await visit(here.server, '#/policies');
  const rows = page.getByRole('row').filter({ has: page.getByRole('rowheader') });
  await rows.first().waitFor();
  expect(await rows.count()).toBe(policies.length);
  const byTokens = [...policies].sort((a, b) => a.availableTokens - b.availableTokens);
  for (const [i, policy] of byTokens.entries()) {
    const row = await words(rows.nth(i));
    expect(row).toContain(`${policy.name} ${policy.upstream} ${policy.scope}`);
    expect(row).toContain(`${policy.availableTokens} / ${policy.capacity}`);
  }
  await page.getByLabel('Scope').fill('b');
  await page.getByRole('button', { name: 'Look up' }).click();
  await until('one row', async () => (await rows.count()) === 1);
  expect(await words(rows.first())).toContain('9 / 10');
});

test('the fleet: processes, owner, store, rules', async () => {
  const fleet = await here.server.get<Fleet>('/v1/health');
  const page = await visit(here.server, '#/fleet');
  const row = page.getByRole('row').filter({ has: page.getByRole('rowheader', { name: fleet.instances[0]?.id ?? '' }) });
  await row.waitFor();
  expect(await words(row)).toContain('as in force owner this one');
  const facts = await words(page.locator('.stats'));
  expect(facts).toContain(`embedded answers ${fleet.store.url}`);
  expect(facts).toContain(`VERSION ${fleet.version}`);
});

test('a fleet of two: who owns the store, whose rules differ, and what only the answering process knows', async () => {
  const redis = await Redis.start();
  onTestFinished(() => redis.stop());
  const rules = (ttl: string) =>
    `[lanes.work]\nchain = ["third"]\nttl = "${ttl}"\n[upstreams.third]\nurl = "http://127.0.0.1:9"\n`;
  const start = async (ttl: string) => {
    const server = await Server.start(rules(ttl), undefined, redis.url);
    onTestFinished(() => server.stop());
    return server;
  };
  const servers = [await start('1h'), await start('2h')];
  const settled = (fleet: Fleet) =>
    fleet.instances.length === 2 &&
    fleet.instances.some(({ differs }) => differs > 0) &&
    fleet.instances.filter(({ owner }) => owner).length === 1;
  for (const server of servers) {
    const { instances, owner, store } = await server.until<Fleet>('/v1/health', settled);
    const page = await visit(server, '#/fleet');
    for (const { id, self, differs, differing = [] } of instances) {
      const row = page.getByRole('row').filter({ has: page.getByRole('rowheader', { name: id }) });
      await row.waitFor();
      const said = await words(row);
      expect(said.includes('this one')).toBe(self);
      expect(said.includes('owner')).toBe(id === owner?.id);
      expect(said.includes('as in force')).toBe(differs === 0);
      for (const name of differing) expect(await row.getByRole('link', { name }).getAttribute('href')).toBe(`#/lanes/${name}`);
    }
    const answering = instances.find(({ self }) => self)!.id;
    await page
      .getByText(`This page is answered by process ${answering}: data losses, version, start and faults are its own.`)
      .waitFor();
    await page.getByRole('region', { name: 'Recent faults' }).getByText(`as process ${answering} saw them`).waitFor();
    const owns = answering === owner?.id;
    expect(store.journalBytes == null, 'only the owner writes the journal').toBe(!owns);
    if (!owns) await page.getByText('Only the owner knows its size.').waitFor();
  }
});

test('what is counted over time is asked for when something happens, and not otherwise', async () => {
  const server = await Server.start('[lanes.work]\nchain = ["third"]\n[upstreams.third]\nurl = "http://127.0.0.1:9"\n');
  onTestFinished(() => server.stop());
  const page = await visit(server, '#/lanes');
  await page.getByRole('rowheader', { name: 'work' }).waitFor();
  let asked = 0;
  page.on('request', (request) => void (new URL(request.url()).pathname === '/v1/history' && asked++));
  await page.clock.install();
  await page.goto(`${server.url}/#/lanes/work`);
  await page.getByRole('region', { name: 'Finished' }).waitFor();
  await until('it is asked', () => asked > 0);
  await page.clock.runFor('30:00');
  // Requests are heard of in order: after this one, all that came before are counted.
  await Promise.all([page.waitForRequest('**/livez'), page.evaluate(() => void fetch('/livez'))]);
  expect(asked, 'nothing has happened').toBe(1);
  await server.post('/v1/lanes/work/pause');
  await page.getByRole('button', { name: 'Resume' }).waitFor();
  await page.clock.runFor('01:00');
  await until('it is asked again', () => asked > 1);
});

test('alerts that fire', async () => {
  const { alerts } = await here.server.get<Alerts>('/v1/alerts');
  const page = await visit(here.server, '#/alerts');
  const rows = page.getByRole('region', { name: 'Firing' }).getByRole('row');
  await rows.first().waitFor();
  expect(await rows.count()).toBe(alerts.length + 1);
  await rows.getByText('Lane mail has 5 dead letters; the limit is 3.').first().waitFor();
  await rows.getByText('The breaker of moody is open.').first().waitFor();
  await until('the title counts them', async () => (await page.title()) === `(${alerts.length}) Alerts · Eclusa`);
});
