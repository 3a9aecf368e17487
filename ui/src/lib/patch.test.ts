import { describe, expect, test } from 'vitest';
import { mergePatch } from './patch';

/** RFC 7396, section 2. */
function applied(target: unknown, patch: unknown): unknown {
  if (typeof patch !== 'object' || patch === null || Array.isArray(patch)) return patch;
  const result: Record<string, unknown> =
    typeof target === 'object' && target !== null && !Array.isArray(target) ? { ...(target as object) } : {};
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete result[name];
    else result[name] = applied(result[name], value);
  }
  return result;
}

describe('a merge patch', () => {
  const from = { type: 'welcome', request: { path: '/a', headers: { x: '1' }, body: { to: ['a@x', 'b@x'], n: 1 } } };

  test('of nothing is nothing', () => expect(mergePatch(from, structuredClone(from))).toBeUndefined());

  test('has only what changed, and null for what is gone', () => {
    const to = { request: { path: '/b', headers: { x: '1' }, body: { to: ['a@x'], n: 1 } }, extra: { y: 2 } };
    expect(mergePatch(from, to)).toEqual({ type: null, request: { path: '/b', body: { to: ['a@x'] } }, extra: { y: 2 } });
  });

  test.each([
    [{ a: 1 }, { a: '1' }],
    [{ a: { b: 1 } }, { a: [1] }],
    [{ a: [1, 2] }, { a: [2, 1] }],
    [{ a: { b: { c: 1 } } }, { a: { b: {} } }],
    [{}, { a: { b: 1 } }],
    [{ a: 'x' }, { a: { b: 1 } }],
    [from, { ...from, type: undefined as unknown as string, request: { ...from.request, path: '/z' } }],
  ])('makes the one of the other', (a, b) => {
    const clean = JSON.parse(JSON.stringify(b)) as unknown;
    expect(applied(a, mergePatch(a, clean))).toEqual(clean);
  });
});
