import { chromium } from 'playwright-core';

/** Debian's Chromium: nothing is downloaded, and it asks nobody for anything. */
export const launch = () =>
  chromium.launch({
    executablePath: '/usr/bin/chromium',
    timeout: 60_000,
    args: [
      '--headless',
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
    ],
  });
