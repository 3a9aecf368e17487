/** Everything can be done with the keyboard, and one sees where one is. */

import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { Job, Lane } from '../src/lib/types';
import { Server } from './support/server';
import { town, type Town } from './support/town';
import { until } from './support/until';
import { tolerate, useBrowser, visit } from './support/visit';

useBrowser();
let here: Town;
beforeAll(async () => {
  here = await town();
});
afterAll(() => here?.close());

/** What has the focus, as it is read out; and whether one sees that. */
const focused = (page: Page) =>
  page.evaluate(() => {
    const element = document.activeElement as HTMLElement;
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    const label = (element as HTMLInputElement).labels?.[0]?.firstChild?.textContent;
    return {
      name: (element.getAttribute('aria-label') ?? label ?? element.textContent ?? '').replace(/\s+/g, ' ').trim(),
      tag: element.tagName.toLowerCase(),
      visible: style.outlineStyle !== 'none' && Number.parseFloat(style.outlineWidth) >= 2 && box.width > 0 && box.top >= 0,
    };
  });

/** Presses Tab until this has the focus. */
async function tabTo(page: Page, name: string): Promise<void> {
  for (let steps = 0; steps < 80; steps++) {
    await page.keyboard.press('Tab');
    const at = await focused(page);
    if (at.tag !== 'body') expect(at, `step ${steps} to ${name}`).toMatchObject({ visible: true });
    if (at.name === name) return;
  }
  throw new Error(`Tab never comes to ${name}`);
}

describe('keys', () => {
  test('? shows them, and Escape closes', async () => {
    const page = await visit(here.server);
    await page.getByRole('heading', { level: 1 }).first().waitFor();
    await page.keyboard.press('?');
    const help = page.getByRole('dialog', { name: 'Keyboard' });
    await help.getByText('Go to Lanes').waitFor();
    await page.keyboard.press('Escape');
    await help.waitFor({ state: 'detached' });
  });

  test('g and a letter go to a page, and reading begins there', async () => {
    const page = await visit(here.server);
    await page.getByRole('heading', { level: 1 }).first().waitFor();
    for (const [letter, heading] of [
      ['l', 'Lanes'],
      ['u', 'Upstreams'],
      ['j', 'Jobs'],
      ['t', 'Tenants'],
      ['d', 'Dead letters 5'],
      ['p', 'Policies'],
      ['f', 'Fleet'],
      ['a', 'Alerts'],
      ['o', 'bureau has no tokens left'],
    ] as const) {
      // Sent at once: the second key must follow within 1.5 s.
      await Promise.all(['g', letter].map((key) => page.keyboard.press(key)));
      await page.getByRole('heading', { level: 1, name: heading }).waitFor();
      expect((await focused(page)).tag, heading).toBe('main');
    }
  });

  test('/ searches: a lane, a page, a job by its id', async () => {
    const page = await visit(here.server);
    const search = async (text: string, found: string) => {
      await page.keyboard.press('/');
      await page.getByRole('dialog').getByRole('combobox').waitFor();
      await page.keyboard.type(text);
      await page.getByRole('option', { name: found }).waitFor();
    };
    await page.getByRole('heading', { level: 1 }).first().waitFor();
    await search('scor', 'score Lane');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'score' }).waitFor();
    await search(here.completed, `Open the job ${here.completed}`);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: here.completed }).waitFor();
    await search('acme', 'Jobs of tenant acme');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Jobs' }).waitFor();
    expect(page.url()).toContain('tenant=acme');
    await search('acme', 'Open the job acme');
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
  });

  test('on a Russian layout they are where they are on an English one', async () => {
    const page = await visit(here.server);
    await page.getByRole('heading', { level: 1 }).first().waitFor();
    const input = await page.context().newCDPSession(page);
    const press = (...keys: [key: string, code: string][]) =>
      Promise.all(keys.map(([key, code]) => input.send('Input.dispatchKeyEvent', { type: 'keyDown', key, code, text: key })));
    await press(['п', 'KeyG'], ['д', 'KeyL']);
    await page.getByRole('heading', { level: 1, name: 'Lanes' }).waitFor();
    await press(['.', 'Slash']);
    await page.getByRole('dialog', { name: 'Search' }).waitFor();
    await page.keyboard.press('Escape');
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    await press([',', 'Slash']);
    await page.getByRole('dialog', { name: 'Keyboard' }).waitFor();
  });

  test('letters typed into a field stay there', async () => {
    const page = await visit(here.server, '#/jobs');
    await page.getByLabel('Tenant').focus();
    await page.keyboard.type('gl/?');
    expect(await page.getByLabel('Tenant').inputValue()).toBe('gl/?');
    expect(await page.getByRole('dialog').count()).toBe(0);
  });
});

test('the first Tab skips to the content', async () => {
  const page = await visit(here.server, '#/lanes');
  await page.getByRole('rowheader').first().waitFor();
  await page.keyboard.press('Tab');
  expect(await focused(page)).toEqual({ name: 'Skip to content', tag: 'a', visible: true });
  await page.keyboard.press('Enter');
  expect((await focused(page)).tag).toBe('main');
});

test('an action is reached, confirmed and left without a mouse', async () => {
  const page = await visit(here.server, '#/lanes');
  await page.getByRole('rowheader').first().waitFor();
  await tabTo(page, 'Pause: mail');
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog', { name: 'Pause mail?' });
  await dialog.waitFor();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  expect((await focused(page)).name, 'back where it was').toBe('Pause: mail');

  await page.keyboard.press('Enter');
  await dialog.waitFor();
  await tabTo(page, 'Pause');
  await page.keyboard.press('Enter');
  await page.getByRole('status').getByText('mail is paused.').waitFor();
  expect((await here.server.get<Lane>('/v1/lanes/mail')).paused).toBe(true);
  await dialog.waitFor({ state: 'detached' });
  // An update from before the pause may still come.
  await until('the focus where the button was', async () => {
    const { name, visible } = await focused(page);
    return name === 'Resume: mail' && visible;
  });
});

test('a list is filtered without a mouse', async () => {
  const page = await visit(here.server, '#/jobs');
  const rows = page.getByRole('rowheader');
  await rows.first().waitFor();
  await tabTo(page, 'Lane');
  await page.keyboard.type('held');
  await tabTo(page, 'Tenant');
  await page.keyboard.type('globex');
  await page.keyboard.press('Enter');
  await until('two jobs', async () => (await rows.count()) === 2);
  expect(page.url()).toContain('#/jobs?lane=held&tenant=globex');
  await tabTo(page, 'Status');
  await page.keyboard.type('pen');
  await page.getByText('No job matches.').waitFor();
  await tabTo(page, 'Clear');
  await page.keyboard.press('Enter');
  await until('all jobs', async () => (await rows.count()) > 2);
});

test('a job is cancelled without a mouse', async () => {
  const { jobs } = await here.server.get<{ jobs: Job[] }>('/v1/jobs?lane=held&tenant=initech');
  const id = jobs[0]!.jobId;
  const page = await visit(here.server, `#/jobs/${id}`);
  await page.getByRole('heading', { level: 1, name: id }).waitFor();
  await tabTo(page, 'Cancel…');
  await page.keyboard.press('Enter');
  await page.getByRole('dialog', { name: 'Cancel this job?' }).waitFor();
  // The first leaves the dialog.
  for (let buttons = 0; buttons < 2; buttons++) await tabTo(page, 'Cancel');
  await page.keyboard.press('Enter');
  await page.getByRole('status').getByText('The job is cancelled.').waitFor();
  expect((await here.server.get<Job>(`/v1/jobs/${id}`)).status).toBe('cancelled');
});

test('a dead letter is replayed without a mouse', async () => {
  const page = await visit(here.server, `#/dead-letters/${here.letter}`);
  await page.getByRole('region', { name: 'Why it failed' }).waitFor();
  await tabTo(page, 'Replay…');
  await page.keyboard.press('Enter');
  await page.getByRole('dialog', { name: 'Replay this dead letter?' }).waitFor();
  await tabTo(page, 'Replay');
  await page.keyboard.press('Enter');
  await page.getByRole('status').getByText('Enqueued again.').waitFor();
  await tabTo(page, 'Open the job');
  await page.keyboard.press('Enter');
  await page.getByRole('region', { name: 'Timeline' }).waitFor();
});

test('one signs in without a mouse', async () => {
  const key = 'root-0123456789abcdef';
  const lane = '[lanes.work]\nchain = ["third"]\n[upstreams.third]\nurl = "http://127.0.0.1:9"\n';
  const server = await Server.start(`[[auth.keys]]\nname = "root"\nrole = "admin"\nkey = "${key}"\n${lane}`, key);
  onTestFinished(() => server.stop());
  const page = await visit(server);
  tolerate(page, /401/);
  await page.getByRole('heading', { level: 1, name: 'Sign in' }).waitFor();
  expect((await focused(page)).name).toBe('Key');
  await page.keyboard.type('wrong');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').getByText('This key is not known here.').waitFor();
  await page.getByLabel('Key').clear();
  await page.keyboard.type(key);
  await tabTo(page, 'Sign in');
  await page.keyboard.press('Enter');
  await page.getByRole('navigation').waitFor();
  await tabTo(page, 'Sign out');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: 'Sign in' }).waitFor();
});
