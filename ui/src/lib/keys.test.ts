import { describe, expect, test } from 'vitest';
import { GO, Keys } from './keys';
import { PAGES } from './routes';

describe('the keyboard', () => {
  test('g and a letter goes to a page, and every page has one', () => {
    for (const [letter, page] of GO) {
      const keys = new Keys();
      expect(keys.press('g', 0)).toEqual({ do: 'nothing' });
      expect(keys.press(letter, 400)).toEqual({ do: 'go', page });
    }
    expect(GO.map(([, page]) => page).sort()).toEqual([...PAGES].sort());
  });

  test('a letter alone, or too late, does nothing', () => {
    const keys = new Keys();
    expect(keys.press('l', 0)).toEqual({ do: 'nothing' });
    keys.press('g', 0);
    expect(keys.press('l', 5000)).toEqual({ do: 'nothing' });
  });

  test('g is used up by the next key', () => {
    const keys = new Keys();
    keys.press('g', 0);
    keys.press('x', 100);
    expect(keys.press('l', 200)).toEqual({ do: 'nothing' });
  });

  test('? and / work after g too', () => {
    const keys = new Keys();
    keys.press('g', 0);
    expect(keys.press('?', 100)).toEqual({ do: 'help' });
    expect(keys.press('/', 200)).toEqual({ do: 'search' });
  });
});
