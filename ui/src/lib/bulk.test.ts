import { afterEach, describe, expect, test, vi } from 'vitest';
import { ApiError, path, search } from './api';
import { act, collect, cursorTime, find, preview } from './bulk';

/** A server that answers what it is given, in order, and remembers what it was asked. */
function server(...answers: [number, unknown][]): string[] {
  const asked: string[] = [];
  vi.stubGlobal('fetch', async (url: string, init: RequestInit) => {
    init.signal?.throwIfAborted();
    asked.push(`${init.method} ${url}`);
    const [status, body] = answers.shift() ?? [500, {}];
    return new Response(status === 204 ? null : JSON.stringify(body), { status });
  });
  return asked;
}

afterEach(() => vi.unstubAllGlobals());

/** Something that takes a while, and how far it said it is. */
function work() {
  const seen: number[] = [];
  const stop = new AbortController();
  return { seen, stop, signal: stop.signal, reached: (count: number) => seen.push(count) };
}

describe('calls on everything that matches', () => {
  test('go on while there is a cursor, and add up', async () => {
    const asked = server([200, { matched: 1000, cancelled: 998, cursor: 'c1' }], [200, { matched: 12, cancelled: 12 }]);
    const cancelling = work();
    expect(await act('/v1/jobs', { lane: 'a b' }, cancelling)).toEqual({ count: 1010, stopped: false });
    expect(cancelling.seen).toEqual([998, 1010]);
    expect(asked).toEqual(['DELETE /v1/jobs?lane=a+b', 'DELETE /v1/jobs?lane=a+b&cursor=c1']);
  });

  test('a preview only counts, and says how many it has found', async () => {
    const asked = server([200, { matched: 7, purged: 0, cursor: 'c1' }], [200, { matched: 2, purged: 0 }]);
    const counting = work();
    expect(await preview('/v1/dead-letters', { code: '5xx' }, counting)).toBe(9);
    expect(counting.seen).toEqual([7, 9]);
    expect(asked).toEqual([
      'DELETE /v1/dead-letters?code=5xx&dryRun=true',
      'DELETE /v1/dead-letters?code=5xx&dryRun=true&cursor=c1',
    ]);
  });

  test('that are stopped finish their part and say how many it was', async () => {
    const asked = server([200, { matched: 1000, cancelled: 1000, cursor: 'c1' }], [200, { matched: 1000, cancelled: 1000 }]);
    const cancelling = work();
    cancelling.stop.abort();
    expect(await act('/v1/jobs', { lane: 'a' }, cancelling)).toEqual({ count: 1000, stopped: true });
    expect(asked.length).toBe(1);
  });

  test('that are stopped in their last part have not been stopped', async () => {
    server([200, { matched: 5, cancelled: 5 }]);
    const cancelling = work();
    cancelling.stop.abort();
    expect(await act('/v1/jobs', { lane: 'a' }, cancelling)).toEqual({ count: 5, stopped: false });
  });

  test('counting ends at once when nobody waits for it', async () => {
    vi.stubGlobal('fetch', (_: string, { signal }: RequestInit) => Promise.reject(signal?.reason));
    const counting = work();
    counting.stop.abort();
    const error = await preview('/v1/jobs', {}, counting).catch((caught: unknown) => caught);
    expect(error).toBe(counting.signal.reason);
  });

  test('short and empty pages with a cursor are not the end', async () => {
    server([200, { jobs: [], cursor: 'a' }], [200, { jobs: [1], cursor: 'b' }], [200, { jobs: [2, 3], cursor: 'c' }]);
    expect(await collect<number, { jobs: number[]; cursor?: string }>('/v1/jobs', {}, (page) => page.jobs, 2)).toEqual({
      items: [1, 2, 3],
      cursor: 'c',
    });
  });
});

describe('a search', () => {
  const none = { signal: new AbortController().signal, cursor: undefined };
  const jobs = (page: { jobs: number[]; cursor?: string }) => page.jobs;
  const seen: (string | undefined)[] = [];
  const reached = (cursor: string | undefined) => seen.push(cursor);
  afterEach(() => seen.splice(0));

  test('that finds little pauses after some calls, says how far it is and goes on from there', async () => {
    const asked = server(
      ...Array.from({ length: 9 }, (_, i): [number, unknown] => [200, { jobs: i === 2 ? [7] : [], cursor: `c${i}` }]),
    );
    const found = await find('/v1/jobs', { tenant: 'a' }, jobs, { ...none, reached });
    expect(found).toEqual({ items: [7], cursor: 'c7' });
    expect(seen).toEqual(['c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7']);
    await find('/v1/jobs', { tenant: 'a' }, jobs, { ...none, cursor: 'c7', reached }).catch(() => {});
    expect(asked[8]).toBe('GET /v1/jobs?tenant=a&cursor=c7');
  });

  test('that fills a page says nothing', async () => {
    server([200, { jobs: Array.from({ length: 50 }), cursor: 'c' }]);
    await find('/v1/jobs', {}, jobs, { ...none, reached });
    expect(seen).toEqual([undefined]);
  });

  test('that nobody wants any more ends', async () => {
    const ended = new AbortController();
    const asked = server([200, { jobs: [], cursor: 'c0' }], [200, { jobs: [1] }]);
    const search = find('/v1/jobs', {}, jobs, { ...none, signal: ended.signal, reached: () => ended.abort() });
    await expect(search).rejects.toMatchObject({ name: 'AbortError' });
    expect(asked.length).toBe(1);
  });

  test('knows from a cursor of jobs how far back it is', () => {
    const at = Date.parse('2026-11-17T17:00:00.123Z');
    expect(cursorTime(`${at}.0196-a`)).toBe(at);
    expect(cursorTime('mail:12')).toBeUndefined();
  });
});

describe('errors', () => {
  test('are the server’s problems', async () => {
    server([422, { type: 'urn:eclusa:problem:invalid', title: 'Invalid', detail: 'No', errors: [{ field: 'a', problem: 'b' }] }]);
    const error = await preview('/v1/jobs', {}, work()).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(ApiError);
    expect(error).toMatchObject({ status: 422, kind: 'invalid', detail: 'No', fields: [{ field: 'a', problem: 'b' }] });
  });

  test('no answer is an error too', async () => {
    vi.stubGlobal('fetch', () => Promise.reject(new TypeError('failed')));
    await expect(preview('/v1/jobs', {}, work())).rejects.toMatchObject({ status: 0, kind: 'unreachable' });
  });
});

test('paths and queries are encoded', () => {
  expect(path`/v1/jobs/${'a/b?c'}/why`).toBe('/v1/jobs/a%2Fb%3Fc/why');
  expect(search({ a: '', b: undefined, c: 0, d: false })).toBe('?c=0&d=false');
});
