import { execFileSync } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { firstJob, jobAsCurl, quoted } from './curl';
import type { Job } from './types';

/** What a real shell makes of the words. */
const shell = (command: string) =>
  execFileSync('sh', ['-c', command.replace(/^curl/, "printf '%s\\n'")], { encoding: 'utf8' })
    .split('\n')
    .slice(0, -1);

describe('commands', () => {
  test('words survive a shell', () => {
    for (const word of ['plain', "D'Ávila", 'a b', '$HOME', '`id`', '"x"', 'a\\b', '!', ''])
      expect(shell(`curl ${quoted(word)}`)).toEqual([word]);
  });

  const job = {
    id: 'order-1',
    jobId: 'j',
    lane: 'mail & more',
    tenant: "D'Ávila",
    priority: 'high',
    status: 'completed',
    createdAt: '',
    attempts: 1,
    timeline: [],
    request: {
      method: 'POST',
      path: '/send',
      query: 'a=1',
      headers: { authorization: '***', 'x-a': 'b' },
      body: { text: "it's $5" },
    },
  } as Job;

  test('a job as curl enqueues the same again, without masked headers', () => {
    const words = shell(jobAsCurl(job, 'http://127.0.0.1:8080', false));
    expect(words).toContain('http://127.0.0.1:8080/v1/lanes/mail%20%26%20more/jobs');
    expect(JSON.parse(words.at(-1) ?? '')).toEqual({
      tenant: "D'Ávila",
      priority: 'high',
      request: { method: 'POST', path: '/send', query: 'a=1', headers: { 'x-a': 'b' }, body: { text: "it's $5" } },
    });
  });

  test('a key is named, never shown', () => expect(jobAsCurl(job, 'http://h', true)).toContain('Bearer $ECLUSA_KEY'));

  test('the first job waits for its answer, unless the lane is direct', () => {
    expect(shell(firstJob('http://h', 'score', false, false))).toEqual(['-i', '-H', 'Prefer: wait=10', 'http://h/proxy/score/']);
    expect(shell(firstJob('http://h', 'dict', true, false))).toEqual(['-i', 'http://h/proxy/dict/']);
  });
});
