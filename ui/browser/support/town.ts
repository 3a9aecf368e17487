/**
 * A server with something on every page. It is quiet: its gates stay closed for an hour, and everything else has happened, so that
 * what the API answers and what the pages show can be compared.
 */

import type { Lane } from '../../src/lib/types';
import { Server } from './server';
import { byPath, silent, upstream, type Upstream } from './upstream';

export interface Town {
  server: Server;
  /** A completed job with an answer. */
  completed: string;
  /** A job that waits for a token. */
  waiting: string;
  /** A dead letter of `mail`. */
  letter: string;
  close(): Promise<void>;
}

const config = (works: string, hangs: string) => `
[alerts]
dead_letters = 3
oldest_wait = false
for = "0s"

# Held by an empty bucket: of those that wait, the first starts after an hour, the others expire before.
[lanes.score]
chain = ["bureau"]
capacity = 20
ttl = "90m"
concurrency = 4
fairness = { batch = 3, weights = { acme = 2 } }
[upstreams.bureau]
url = "${works}"
rate = "1/h"
burst = 5
breaker = {}

# The first upstream fails until its breaker opens, the second answers.
[lanes.render]
chain = ["moody", "flaky"]
retry = { attempts = 9, base = "10ms", cap = "10ms" }
[upstreams.moody]
url = "${works}/503"
cooldown = ["1h"]
breaker = { failures = 1, open_for = "1h" }
[upstreams.flaky]
url = "${works}"
max_concurrent = 10

# Leaves dead letters.
[lanes.mail]
chain = ["post"]
retry = { attempts = 1 }
mask = ["body./to"]
[upstreams.post]
url = "${works}"

# Paused.
[lanes.held]
chain = ["post"]

# One call in flight.
[lanes.slow]
chain = ["hangs"]
[upstreams.hangs]
url = "${hangs}"
timeout = "1h"
max_concurrent = 1

# No queue, several keys, a limit by scope.
[lanes.proxy]
mode = "direct"
chain = ["fast"]
[upstreams.fast]
url = "${works}"
headers = { x-key = "{key}" }
[[upstreams.fast.keys]]
name = "first"
key = "0123456789abcdef"
rpm = 60
[[upstreams.fast.keys]]
name = "second"
key = "fedcba9876543210"
rpm = 60
[[upstreams.fast.policies]]
name = "PER_CLIENT"
scope = "header:x-client"
capacity = 10
refill = "1/h"
alert_below = 0.5
`;

export async function town(): Promise<Town> {
  const upstreams: Upstream[] = [await upstream(byPath), await upstream(silent)];
  const [works, hangs] = upstreams as [Upstream, Upstream];
  const server = await Server.start(config(works.url, hangs.url));
  const job = (tenant: string, more: object = {}) => ({ tenant, request: { path: '/' }, ...more });

  await server.post('/v1/lanes/held/pause');
  await server.enqueue('held', [
    job('acme', { priority: 'high' }),
    ...['acme', 'acme', 'globex', 'initech'].map((tenant) => job(tenant)),
    job('globex', { priority: 'low' }),
    job('initech', { delay: '24h' }),
  ]);
  const score = await server.enqueue('score', [
    ...['acme', 'globex', 'initech', 'acme', 'globex'].map((tenant) => job(tenant)),
    ...['acme', 'acme', 'globex'].map((tenant) => job(tenant, { type: 'update' })),
  ]);
  await server.enqueue(
    'render',
    ['acme', 'globex'].map((tenant) => job(tenant)),
  );
  await server.enqueue('slow', [job('acme'), job('globex')]);
  const body = { to: 'somebody@example.com', text: 'hello' };
  const letters = await server.enqueue('mail', [
    ...['acme', 'acme', 'acme', 'globex'].map((tenant) => job(tenant, { request: { path: '/422/letters', body } })),
    job('globex', { request: { path: '/500', body } }),
  ]);
  // `b` first: what it spent leaves the last minute before what `a` spent, so `a` is the closer to empty at any time.
  for (const client of ['b', 'a', 'a', 'a', 'a', 'a', 'a'])
    await fetch(`${server.url}/proxy/proxy/`, { headers: { 'x-client': client } });

  const lane = (name: string, wanted: (lane: Lane) => boolean) => server.until(`/v1/lanes/${name}`, wanted);
  await lane('score', ({ totals }) => totals.completed === 5);
  await lane('render', ({ totals }) => totals.completed === 2);
  await lane('slow', ({ processing }) => processing === 1);
  await lane('mail', ({ deadLetters }) => deadLetters === letters.length);
  await server.until<{ alerts: { name: string }[] }>('/v1/alerts', ({ alerts }) =>
    ['dead_letters', 'breaker_open', 'policy_low'].every((name) => alerts.some((alert) => alert.name === name)),
  );
  return {
    server,
    completed: score[0]!,
    waiting: score.at(-1)!,
    letter: letters[0]!,
    close: async () => {
      await server.stop();
      await Promise.all(upstreams.map((one) => one.close()));
    },
  };
}
