/** A fresh server: the command on its first page makes the first job, whatever its lane wants. */

import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import type { Lane } from '../src/lib/types';
import { Server } from './support/server';
import { run } from './support/shell';
import { byPath, upstream, type Upstream } from './support/upstream';
import { useBrowser, visit } from './support/visit';

useBrowser();
let third: Upstream;
let server: Server | undefined;
beforeAll(async () => {
  third = await upstream(byPath);
});
afterEach(() => server?.stop());
afterAll(() => third?.close());

const http = () => `[upstreams.third]\nurl = "${third.url}"\n`;
const conditions = `accept = { methods = ["POST"], paths = ["/entries/{key}"] }
validate = { "query.cpf" = "cpf", "header.x-org" = "cnpj", "body./to" = "required" }
`;
const template = 'request = { path = "/run", body = { input = "{params./input}" } }\n';
const smtp = '[upstreams.post]\nkind = "smtp"\nurl = "smtp://127.0.0.1:9"\n';

test.each([
  ['a lane that takes any request', () => `[lanes.work]\nchain = ["third"]\n${http()}`, 200],
  ['a lane with conditions', () => `[lanes.work]\nchain = ["third"]\n${conditions}${http()}`, 200],
  ['a lane whose jobs have params', () => `[lanes.work]\nchain = ["third"]\n${http()}${template}`, 202],
  ['a lane that sends mail', () => `[lanes.work]\nchain = ["post"]\n${smtp}`, 202],
  ['a direct lane', () => `[lanes.work]\nmode = "direct"\nchain = ["third"]\n${conditions}${http()}`, 200],
])('%s', async (_, config, status) => {
  server = await Server.start(config());
  const page = await visit(server);
  const command = page.getByRole('region', { name: 'The first job' }).locator('pre');
  await command.waitFor();
  expect(await run(await command.innerText())).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
  const used = ({ totals, answers }: Lane) => totals.accepted + (answers['200'] ?? 0) > 0;
  const lane = await server.until<Lane>('/v1/lanes/work', used);
  expect(lane.example, 'the lane is not unused any more').toBeUndefined();
  await command.waitFor({ state: 'detached' });
});
