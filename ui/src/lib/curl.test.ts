import { execFileSync } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { firstJob, firstLane, jobAsCurl, quoted } from './curl';
import { en, type Messages } from './i18n/en';
import { ptBR } from './i18n/pt-BR';
import { ru } from './i18n/ru';
import type { Example, Job, Lane, Message } from './types';

/** What a real shell makes of the words. */
const shell = (command: string) =>
  execFileSync('sh', ['-c', command.replace(/^curl/m, "printf '%s\\n'")], { encoding: 'utf8' })
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
      headers: { authorization: ['***'], 'x-a': ['b', 'c'] },
      body: { text: "it's $5" },
    },
  } as Job;

  test('a job as curl enqueues the same again, without masked headers', () => {
    const words = shell(jobAsCurl(job, 'http://127.0.0.1:8080', false, en));
    expect(words).toContain('http://127.0.0.1:8080/v1/lanes/mail%20%26%20more/jobs');
    expect(JSON.parse(words.at(-1) ?? '')).toEqual({
      tenant: "D'Ávila",
      priority: 'high',
      request: { method: 'POST', path: '/send', query: 'a=1', headers: { 'x-a': 'b, c' }, body: { text: "it's $5" } },
    });
  });

  const copied = (more: Partial<Job>, m: Messages = en) => {
    const { request: _, ...plain } = job;
    const command = jobAsCurl({ ...plain, ...more }, 'http://h', false, m);
    return {
      command,
      comments: command.split('\n').filter((line) => line.startsWith('#')),
      sent: JSON.parse(shell(command).at(-1) ?? ''),
    };
  };

  test('a command says what it lacks', () => {
    const request = { method: 'POST', path: '/', query: 'a=1&b=%2A%2A%2A', headers: {}, body: { to: [{ mail: '***' }] } };
    const { comments, sent } = copied({ request, params: { key: '***' } });
    expect(comments).toEqual([expect.stringContaining('Masked values in query, body, params.')]);
    expect(sent).toMatchObject({ request: { body: { to: [{ mail: '***' }] } } });
    expect(copied({ request: { ...request, query: 'a=%zz', body: '***' } }).comments).toEqual([
      expect.stringContaining('Masked values in body.'),
    ]);
    expect(copied({ request: { ...request, query: '', body: { base64: 'AA==' } } }).comments).toEqual([
      expect.stringContaining('The body is not text.'),
    ]);
    expect(copied({ request: { ...request, query: '', body: 'a***b' } }).comments).toEqual([]);
  });

  test('a message is copied without what is not shown', () => {
    const message = { from: 'a@x', to: ['b@x'], subject: '***', headers: { 'X-Key': '***', 'X-A': 'b' }, attachments: [{}] };
    const { comments, sent } = copied({ message });
    expect(comments).toEqual([
      expect.stringContaining('Masked values in message.'),
      expect.stringContaining('Masked headers'),
      expect.stringContaining('Attachments'),
    ]);
    expect(sent.message).toEqual({ from: 'a@x', to: ['b@x'], subject: '***', headers: { 'X-A': 'b' } });
    expect(copied({ message: { subject: 'hello' } as Message }).comments).toEqual([expect.stringContaining('recipients')]);
  });

  test.each(Object.entries({ en, ptBR, ru }))('no shell interprets the comments in %s', (_, m) => {
    const { masked, ...others } = m.curl;
    for (const text of [masked('query, body'), ...Object.values(others)]) expect(text).toMatch(/^[\p{L}\d ,.:]+$/u);
  });

  test('a key is named, never shown', () => expect(jobAsCurl(job, 'http://h', true, en)).toContain('Bearer $ECLUSA_KEY'));

  const lane = (name: string, example: Example, mode: 'queue' | 'direct' = 'queue') => ({ name, mode, example }) as Lane;
  const request = { path: '/' };

  test('the first job waits for its answer, unless the lane is direct', () => {
    const words = (mode?: 'direct') => shell(firstJob(lane('score', { request }, mode), 'http://h', false));
    expect(words()).toEqual(['-i', '-H', 'Prefer: wait=10', 'http://h/proxy/score/']);
    expect(words('direct')).toEqual(['-i', 'http://h/proxy/score/']);
  });

  test('the first job has what its lane wants', () => {
    const wanted = { method: 'PUT', path: '/a%20b', query: { cpf: '1 2' }, headers: { 'x-org': "D'Ávila" }, body: { a: "it's" } };
    expect(shell(firstJob(lane('score', { request: wanted }, 'direct'), 'http://h', false))).toEqual([
      ...['-i', '-X', 'PUT', '-H', "x-org: D'Ávila", '-H', 'Content-Type: application/json', '-d', `{"a":"it's"}`],
      'http://h/proxy/score/a%20b?cpf=1+2',
    ]);
    const message = { to: 'a@x', text: 'hello' };
    const mail = shell(firstJob(lane('mail', { message }), 'http://h', false));
    expect(mail).toContain('http://h/v1/lanes/mail/jobs');
    expect(JSON.parse(mail.at(-1) ?? '')).toEqual({ message });
  });

  test('the first job goes to a lane that queues requests, if there is one', () => {
    const [mail, direct, queue] = [
      lane('mail', { message: {} }),
      lane('direct', { request }, 'direct'),
      lane('queue', { request }),
    ];
    const unknown = { name: 'unknown', mode: 'queue' } as Lane;
    expect(firstLane([unknown, mail, direct, queue])?.name).toBe('queue');
    expect(firstLane([unknown, direct, mail])?.name).toBe('mail');
    expect(firstLane([unknown])).toBeUndefined();
  });
});
