/**
 * Takes the pictures of README and docs: runs `eclusa demo` until something has happened on every page, and writes them to
 * `docs/images/`. `npm run screenshots -- SECONDS` after `cargo build -p eclusa`.
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { crc32, deflateSync, inflateSync } from 'node:zlib';
import { launch } from './support/chromium.mjs';

const ROOT = join(import.meta.dirname, '../..');
const BINARY = process.env.ECLUSA_BIN ?? join(ROOT, 'target/debug/eclusa');
const OUT = join(ROOT, 'docs/images');
const MOST_BYTES = 150 * 1024;
/** Long enough for the charts to have a line. */
const RUNS_FOR_MS = Number(process.argv[2] ?? 300) * 1000;

const demo = spawn(BINARY, ['demo', '--listen', '127.0.0.1:0'], { stdio: ['ignore', 'pipe', 'inherit'] });
process.once('exit', () => demo.kill('SIGKILL'));
let url = '';
for await (const line of createInterface({ input: demo.stdout })) {
  url = /http:\/\/127\.0\.0\.1:\d+/.exec(line)?.[0] ?? '';
  if (url) break;
}
demo.stdout.resume();

/** @param {string} path */
const get = async (path) => (await fetch(url + path)).json();

/**
 * Asks until there is an answer.
 * @template T
 * @param {string} what
 * @param {() => Promise<T | undefined | false>} ask
 */
async function until(what, ask) {
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    console.log(`waiting for ${what}`);
    await pause(1000);
  }
}

console.log(`the demo runs at ${url}; pictures in ${RUNS_FOR_MS / 1000} s`);
await pause(RUNS_FOR_MS);

const browser = await launch();
mkdirSync(OUT, { recursive: true });

/**
 * @param {string} name
 * @param {string} hash
 * @param {string} landmark Something that is there when the page has its data.
 * @param {'light' | 'dark'} scheme
 */
async function picture(name, hash, landmark, scheme = 'light') {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 }, colorScheme: scheme, locale: 'en-US' });
  await page.goto(`${url}/${hash}`);
  await page.locator('main').locator(landmark).first().waitFor();
  const path = join(OUT, `${name}.png`);
  const png = smaller(await page.screenshot());
  if (png.length > MOST_BYTES) throw new Error(`${path} has ${png.length} bytes, more than ${MOST_BYTES}`);
  writeFileSync(path, png);
  console.log(`${path} ${Math.round(png.length / 1024)} KiB`);
  await page.close();
}

/**
 * The same picture with its pixels compressed as well as zlib can.
 * @param {Buffer} png
 */
function smaller(png) {
  const chunks = [];
  const pixels = [];
  for (let at = 8; at < png.length;) {
    const size = png.readUInt32BE(at);
    const chunk = png.subarray(at, at + size + 12);
    if (chunk.toString('latin1', 4, 8) === 'IDAT') pixels.push(chunk.subarray(8, -4));
    else chunks.push(chunk);
    at += size + 12;
  }
  const data = deflateSync(inflateSync(Buffer.concat(pixels)), { level: 9, memLevel: 9 });
  const packed = Buffer.alloc(data.length + 12);
  packed.writeUInt32BE(data.length, 0);
  packed.write('IDAT', 4, 'latin1');
  data.copy(packed, 8);
  packed.writeUInt32BE(crc32(packed.subarray(4, -4)), data.length + 8);
  const end = chunks.pop() ?? Buffer.alloc(0);
  return Buffer.concat([png.subarray(0, 8), ...chunks, packed, end]);
}

// The one with a limit: boats wait, the lock says when it opens.
const held = await until('a lane that is held', async () => {
  const status = await get('/v1/status');
  return status.code === 'held' && status.args.waiting > 2 && status.args;
});
await picture('overview', '#/', 'section[aria-labelledby=needs]');
await picture('overview-dark', '#/', 'section[aria-labelledby=needs]', 'dark');
await picture('lane', `#/lanes/${held.lane}`, 'section[aria-labelledby=tenants]');
const waiting = await get(`/v1/jobs?lane=${held.lane}&status=queued`);
await picture('job-waiting', `#/jobs/${waiting.jobs[0].jobId}`, 'text=Why it waits');
await picture('upstream', '#/upstreams/moody', 'section[aria-labelledby=codes] tbody tr');
const tried = await until('a job with several calls', async () => {
  const { jobs } = await get('/v1/jobs?lane=render&status=completed');
  return jobs.find((/** @type {{ attempts: number }} */ job) => job.attempts > 1);
});
await picture('job', `#/jobs/${tried.jobId}`, 'section[aria-labelledby=timeline] ol li');
await until('a dead letter', async () => (await get('/v1/dead-letters')).deadLetters.length > 0);
await picture('dead-letters', '#/dead-letters', 'section[aria-labelledby=tenant] li');

await browser.close();
const ended = once(demo, 'exit');
demo.kill('SIGINT');
await ended;
