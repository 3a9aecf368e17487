import { describe, expect, test } from 'vitest';
import { EMPTY, reduce, RING, type State } from './reduce';
import type { JobEvent, Lane, Upstream } from './types';

const lane = (name: string, pending = 0) => ({ name, pending }) as Lane;
const upstream = (name: string) => ({ name }) as Upstream;
const job = (jobId: string, at = '2026-11-17T17:00:00Z') => ({ jobId, at }) as JobEvent;

describe('the state of the pages', () => {
  test('a snapshot replaces its topics and keeps the others', () => {
    const before: State = { ...EMPTY, upstreams: [upstream('a')], jobs: [job('1')] };
    const after = reduce(before, { type: 'snapshot', data: { at: 'now', lanes: [lane('score')] } });
    expect(after.lanes.map(({ name }) => name)).toEqual(['score']);
    expect(after.upstreams).toEqual(before.upstreams);
    expect(after.jobs).toEqual(before.jobs);
  });

  test('changes replace in place, add at the end and remove', () => {
    const before: State = { ...EMPTY, lanes: [lane('a'), lane('b'), lane('c')] };
    const after = reduce(before, { type: 'lanes', data: [lane('d'), { name: 'b', removed: true }, lane('a', 7)] });
    expect(after.lanes.map(({ name, pending }) => [name, pending])).toEqual([
      ['a', 7],
      ['c', 0],
      ['d', 0],
    ]);
    expect(after.lanes[1]).toBe(before.lanes[2]);
  });

  test('removing what is not there changes nothing', () => {
    const before: State = { ...EMPTY, upstreams: [upstream('a')] };
    expect(reduce(before, { type: 'upstreams', data: [{ name: 'b', removed: true }] }).upstreams).toEqual(before.upstreams);
  });

  test('job events are kept newest first, up to a bound', () => {
    let state = EMPTY;
    for (let i = 0; i < RING + 10; i++) state = reduce(state, { type: 'jobs', data: [job(`${i}`), job(`${i}+`)] });
    expect(state.jobs).toHaveLength(RING);
    expect(state.jobs.slice(0, 3).map(({ jobId }) => jobId)).toEqual([`${RING + 9}+`, `${RING + 9}`, `${RING + 8}+`]);
  });

  test('after a gap no old event poses as the last one', () => {
    const before: State = { ...EMPTY, lanes: [lane('a')], jobs: [job('1')] };
    const after = reduce(before, { type: 'gap', data: {} });
    expect(after.jobs).toEqual([]);
    expect(after.lanes).toBe(before.lanes);
  });
});
