import { describe, expect, test } from 'vitest';
import { href, PAGES, parse } from './routes';

describe('hash routes', () => {
  test('nothing is the overview', () => {
    for (const hash of ['', '#', '#/']) expect(parse(hash)).toEqual({ page: 'overview', id: null, query: {} });
  });

  test('a page with an id and a query', () => {
    expect(parse('#/lanes/score?minutes=5')).toEqual({ page: 'lanes', id: 'score', query: { minutes: '5' } });
  });

  test('what the server links to', () => {
    expect(parse('#/dead-letters?lane=email')).toEqual({ page: 'dead-letters', id: null, query: { lane: 'email' } });
  });

  test('ids survive whatever they contain', () => {
    for (const id of ['a/b', 'acme-n=24.0-17', 'ação?x=1&y#z', '100%', ' ']) {
      expect(parse(href('jobs', id, { lane: 'a&b' }))).toEqual({ page: 'jobs', id, query: { lane: 'a&b' } });
    }
  });

  test('a broken escape does not break the page', () => expect(parse('#/jobs/100%').id).toBe('100%'));

  test('empty parts of a query are left out', () =>
    expect(href('jobs', null, { lane: '', tenant: undefined, id: 'x' })).toBe('#/jobs?id=x'));

  test('what does not exist is unknown', () => {
    expect(parse('#/nothing').page).toBe('unknown');
    expect(parse('#/lanes/a/b').page).toBe('unknown');
  });

  test('every page leads to itself', () => {
    for (const page of PAGES) expect(parse(href(page)).page).toBe(page);
  });
});
