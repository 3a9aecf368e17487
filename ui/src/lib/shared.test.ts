import { beforeEach, describe, expect, test } from 'vitest';
import { Shared, type Heard } from './shared';
import type { Said } from './stream';

let opened: number;
let open: boolean;
let say: (said: Said) => void;
let shared: Shared;

beforeEach(() => {
  opened = 0;
  open = false;
  shared = new Shared((hear) => {
    say = hear;
    return {
      open: () => {
        opened++;
        open = true;
      },
      close: () => {
        open = false;
      },
    };
  });
});

class Tab {
  heard: Heard[] = [];
  postMessage(heard: Heard) {
    this.heard.push(heard);
  }
  get words() {
    return this.heard.splice(0).map(({ say }) => say);
  }
}

function joined(who = 'ops'): Tab {
  const tab = new Tab();
  shared.tell(tab, { tell: 'join', who });
  return tab;
}
const snapshot: Said = { say: 'event', event: { type: 'snapshot', data: { at: '2026-11-17T17:00:00Z', lanes: [] } } };

describe('one stream for all tabs', () => {
  test('is opened by the first, and tells all', () => {
    const tabs = [joined(), joined(), joined()];
    expect(opened).toBe(1);
    say({ say: 'live' });
    expect(tabs.map(({ words }) => words)).toEqual([['live'], ['live'], ['live']]);
  });

  test('tells a later tab at once what the others know', () => {
    joined();
    say({ say: 'live' });
    expect(joined().words, 'before the first snapshot').toEqual(['live']);
    say(snapshot);
    const late = joined();
    expect(late.heard[0]).toMatchObject({ say: 'state', state: { at: '2026-11-17T17:00:00Z' } });
    expect(late.words).toEqual(['state', 'live']);
    say({ say: 'lost' });
    expect(joined().words).toEqual(['state', 'lost']);
  });

  test('goes on while one tab is left, in whichever order they leave', () => {
    const [first, second] = [joined(), joined()];
    shared.tell(first, { tell: 'leave' });
    expect(open).toBe(true);
    say({ say: 'live' });
    expect([first.words, second.words]).toEqual([[], ['live']]);
    shared.tell(second, { tell: 'leave' });
    expect(open).toBe(false);
    joined();
    expect([opened, open]).toEqual([2, true]);
  });

  test('begins anew for another key, of which the others are told; they do not begin it again', () => {
    const [first, second] = [joined(), joined()];
    say(snapshot);
    first.words;
    second.words;
    shared.tell(first, { tell: 'join', who: 'root' });
    expect([opened, first.words, second.words]).toEqual([2, [], ['other']]);
    shared.tell(second, { tell: 'join', who: 'root' });
    expect(opened).toBe(2);
  });

  test('asks again after a sign-out, if anybody is left', () => {
    const [first] = [joined(), joined()];
    shared.tell(first, { tell: 'leave' });
    shared.tell(first, { tell: 'renew' });
    expect(opened).toBe(2);
  });
});
