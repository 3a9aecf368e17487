/** Signing in, and what each role sees: buttons that a key may not use are not there. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Server } from './support/server';
import { byPath, upstream, type Upstream } from './support/upstream';
import { until } from './support/until';
import { signIn, tolerate, useBrowser, visit } from './support/visit';

const secret = (name: string) => `${name}-0123456789abcdef`;
const key = (name: string, role: string, more = '') =>
  `[[auth.keys]]\nname = "${name}"\nrole = "${role}"\nkey = "${secret(name)}"\n${more}\n`;

useBrowser();
let server: Server;
let third: Upstream;
let waiting: string;
let letter: string;

beforeAll(async () => {
  third = await upstream(byPath);
  server = await Server.start(
    `${key('shop', 'producer')}${key('grafana', 'viewer')}${key('ops', 'operator')}${key('root', 'admin')}
${key('acme-ops', 'operator', 'tenants = ["acme"]')}${key('work-ops', 'operator', 'lanes = ["work"]')}
[lanes.work]
chain = ["third"]
mask = ["body./card"]
[lanes.mail]
chain = ["third"]
retry = { attempts = 1 }
[upstreams.third]
url = "${third.url}"
breaker = { failures = 100 }
`,
    secret('root'),
  );
  await server.post('/v1/lanes/work/pause');
  const request = { path: '/422', body: { card: '4111', amount: 7 } };
  [waiting] = (await server.enqueue('work', [{ tenant: 'acme', request }])) as [string];
  [letter] = (await server.enqueue('mail', [{ tenant: 'acme', request }])) as [string];
  await server.until<{ deadLetters: number }>('/v1/lanes/mail', ({ deadLetters }) => deadLetters === 1);
});
afterAll(async () => {
  await server?.stop();
  await third?.close();
});

/** Signs in and opens one page after the other, each of which is known by a heading. */
async function as(name: string) {
  const page = await visit(server);
  await signIn(page, secret(name));
  return {
    page,
    async see(hash: string, heading: string | RegExp) {
      await page.goto(`${server.url}/${hash}`);
      await page.getByRole('heading', { level: 1, name: heading }).waitFor();
    },
    buttons: (name: string | RegExp) => page.getByRole('main').getByRole('button', { name }).count(),
  };
}

describe('signing in', () => {
  test('a wrong key is said to be wrong', async () => {
    const page = await visit(server, '#/lanes');
    tolerate(page, /401/);
    await page.getByRole('heading', { level: 1, name: 'Sign in' }).waitFor();
    expect(await page.getByRole('navigation').count()).toBe(0);
    await page.getByLabel('Key').fill('wrong-0123456789abcdef');
    await page.keyboard.press('Enter');
    await page.getByRole('alert').getByText('This key is not known here.').waitFor();
    expect(await page.context().cookies()).toEqual([]);
    await signIn(page, secret('grafana'));
    await page.getByRole('heading', { level: 1, name: 'Lanes' }).waitFor();
  });

  test('the session is a cookie that no script can read, and lasts over a reload', async () => {
    const { page } = await as('grafana');
    const [cookie, ...others] = await page.context().cookies();
    expect(others).toEqual([]);
    expect(cookie).toMatchObject({ httpOnly: true, sameSite: 'Strict' });
    expect(await page.evaluate(() => document.cookie + JSON.stringify({ ...localStorage, ...sessionStorage }))).toBe('{}');
    await page.reload();
    await page.getByRole('navigation').waitFor();
  });

  test('signing out', async () => {
    const { page } = await as('grafana');
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { level: 1, name: 'Sign in' }).waitFor();
    expect(await page.context().cookies()).toEqual([]);
    await page.reload();
    await page.getByRole('heading', { level: 1, name: 'Sign in' }).waitFor();
  });

  test('a session that has ended asks for a key, and goes on where one was', async () => {
    const { page } = await as('grafana');
    tolerate(page, /401/);
    await page.context().clearCookies();
    await page.goto(`${server.url}/#/jobs`);
    await page.getByRole('heading', { level: 1, name: 'Sign in' }).waitFor();
    await signIn(page, secret('grafana'));
    await page.getByRole('heading', { level: 1, name: 'Jobs' }).waitFor();
  });
});

describe('what a key may not do is not offered', () => {
  test('a producer opens jobs by their id, and sees nothing else', async () => {
    const { page } = await as('shop');
    await page.getByRole('heading', { level: 1, name: 'Open a job' }).waitFor();
    expect(await page.getByRole('navigation').getByRole('link').allInnerTexts()).toEqual(['Jobs']);
    await page.getByLabel('Id').fill(waiting);
    await page.getByRole('button', { name: 'Open' }).click();
    await page.getByRole('region', { name: 'Why it waits' }).getByText('The lane is paused.').waitFor();
    expect(await page.getByRole('button', { name: 'Cancel…' }).count()).toBe(0);
    await page.goto(`${server.url}/#/lanes`);
    await page.getByRole('heading', { level: 1, name: 'Open a job' }).waitFor();
  });

  test('a viewer sees everything and changes nothing', async () => {
    const { page, see, buttons } = await as('grafana');
    await see('#/lanes', 'Lanes');
    await page.getByRole('rowheader', { name: 'work' }).waitFor();
    expect(await buttons(/Pause|Resume/)).toBe(0);
    await see('#/lanes/work', 'work');
    await page.getByRole('region', { name: 'Rates' }).waitFor();
    expect(await buttons(/Pause|Resume|Cancel/)).toBe(0);
    await see('#/upstreams/third', 'third');
    await page.getByText('no failures').waitFor();
    expect(await buttons(/Reset/)).toBe(0);
    await see('#/jobs', 'Jobs');
    await page.getByRole('rowheader').first().waitFor();
    expect(await buttons(/Cancel/)).toBe(0);
    await see(`#/jobs/${waiting}`, waiting);
    await page.getByRole('region', { name: 'Request' }).waitFor();
    expect(await buttons(/Cancel|Replay/)).toBe(0);
    await see('#/dead-letters', /Dead letters/);
    await page.getByRole('rowheader').first().waitFor();
    expect(await buttons(/Replay|Purge/)).toBe(0);
    await see(`#/dead-letters/${letter}`, letter);
    await page.getByRole('region', { name: 'Why it failed' }).waitFor();
    expect(await buttons(/Replay|Edit|Discard/)).toBe(0);
  });

  test('an operator acts, and sees masked values as asterisks', async () => {
    const { page, see, buttons } = await as('ops');
    await see('#/lanes/work', 'work');
    await page.getByRole('button', { name: 'Resume' }).waitFor();
    await see('#/upstreams/third', 'third');
    await page.getByRole('button', { name: 'Reset gates…' }).waitFor();
    await see(`#/dead-letters/${letter}`, letter);
    await page.getByRole('region', { name: 'Why it failed' }).waitFor();
    expect(await buttons(/Replay…|Edit|Discard…/)).toBe(3);
    await see(`#/jobs/${waiting}`, waiting);
    const request = page.getByRole('region', { name: 'Request' });
    await request.getByText('"card": "***"').waitFor();
    expect(await request.innerText()).not.toContain('4111');
  });

  test('an admin sees them as they are', async () => {
    const { page, see } = await as('root');
    await see(`#/jobs/${waiting}`, waiting);
    await page.getByRole('region', { name: 'Request' }).getByText('"card": "4111"').waitFor();
  });

  test('an operator of one tenant acts on its jobs, not on lanes and upstreams', async () => {
    const { page, see, buttons } = await as('acme-ops');
    await see('#/lanes', 'Lanes');
    await page.getByRole('rowheader', { name: 'work' }).waitFor();
    expect(await buttons(/Pause|Resume/)).toBe(0);
    await see('#/upstreams/third', 'third');
    await page.getByText('no failures').waitFor();
    expect(await buttons(/Reset/)).toBe(0);
    await see(`#/jobs/${waiting}`, waiting);
    await page.getByRole('button', { name: 'Cancel…' }).waitFor();
  });

  test('an operator of one lane acts on it, not on upstreams that others may use', async () => {
    const { page, see, buttons } = await as('work-ops');
    await see('#/lanes', 'Lanes');
    await page.getByRole('button', { name: 'Resume: work' }).waitFor();
    await until('only its lane', async () => (await page.getByRole('rowheader').count()) === 1);
    await see('#/upstreams/third', 'third');
    await page.getByText('no failures').waitFor();
    expect(await buttons(/Reset/)).toBe(0);
  });
});
