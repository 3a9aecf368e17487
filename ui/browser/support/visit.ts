/** A visit: a page of the server in a browser, and everything on it that must not happen. */

import { join } from 'node:path';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, expect } from 'vitest';
import { launch } from './chromium.mjs';
import type { Server } from './server';
import { PATIENCE_MS } from './until';

export interface Look {
  width?: number;
  height?: number;
  scheme?: 'light' | 'dark';
  locale?: string;
  /** Moving pictures cost a quarter of a core, so only tests of motion want them. */
  motion?: boolean;
}

interface Visit {
  page: Page;
  context: BrowserContext;
  /** Console errors, exceptions, violations of the policy, requests to other hosts. */
  problems: string[];
  tolerated: RegExp[];
}

let browser: Browser;
const visits: Visit[] = [];

/** One browser for the tests of a file. After each test, its visits must have been without problems. */
export function useBrowser(): void {
  beforeAll(async () => {
    browser = await launch();
  });
  afterAll(() => browser?.close());
  afterEach(async ({ task }) => {
    const ended = visits.splice(0);
    if (task.result?.state === 'fail') for (const { page } of ended) await picture(page, task.name);
    await Promise.all(ended.map(({ context }) => context.close()));
    const problems = ended.flatMap(({ problems, tolerated }) =>
      problems.filter((problem) => !tolerated.some((pattern) => pattern.test(problem))),
    );
    expect(problems).toEqual([]);
  });
}

/** Opens a page of the dashboard as somebody who has never been there. */
export async function visit(server: Server, hash = '#/', look: Look = {}): Promise<Page> {
  const context = await browser.newContext({
    viewport: { width: look.width ?? 1280, height: look.height ?? 800 },
    colorScheme: look.scheme ?? 'light',
    locale: look.locale ?? 'en-US',
    timezoneId: 'America/Sao_Paulo',
    reducedMotion: look.motion ? 'no-preference' : 'reduce',
  });
  context.setDefaultTimeout(PATIENCE_MS);
  const problems: string[] = [];
  await context.addInitScript(() => {
    addEventListener('securitypolicyviolation', (event) =>
      console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI}`),
    );
  });
  // Of this page and of all that the test opens beside it.
  context.on('page', (page) => {
    page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning')
        problems.push(`console: ${message.text()} ${message.location().url}`);
    });
    page.on('pageerror', (error) => problems.push(`exception: ${error.stack ?? error.message}`));
  });
  context.on('request', (request) => {
    const { protocol, origin } = new URL(request.url());
    if (protocol !== 'data:' && origin !== server.url) problems.push(`request to another host: ${request.url()}`);
  });
  const page = await context.newPage();
  visits.push({ page, context, problems, tolerated: [] });
  await page.goto(`${server.url}/${hash}`);
  return page;
}

/** Browsers log every refused request; these are what the test is about. */
export function tolerate(page: Page, pattern: RegExp): void {
  visits.find((visit) => visit.page === page)?.tolerated.push(pattern);
}

async function picture(page: Page, test: string): Promise<void> {
  const path = join(import.meta.dirname, '../../../target/browser', `${test.replace(/\W+/g, '_')}.png`);
  await page.screenshot({ path }).catch(() => {});
  console.error(`${test}: at ${page.url()}, see ${path}`);
}

/** Signs in with a key, from the page that asks for one. */
export async function signIn(page: Page, key: string): Promise<void> {
  await page.getByLabel('Key').fill(key);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('navigation').waitFor();
}
