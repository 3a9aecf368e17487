import { describe, expect, test } from 'vitest';
import { GO, Keys, latin } from './keys';
import { PAGES } from './routes';

/** A key of an English keyboard. */
const us = (key: string) => ({ key, code: /^[a-z]$/.test(key) ? `Key${key.toUpperCase()}` : 'Slash' });

describe('the keyboard', () => {
  test('g and a letter goes to a page, and every page has one', () => {
    for (const [letter, page] of GO) {
      const keys = new Keys();
      expect(keys.press(us('g'), 0)).toEqual({ do: 'nothing' });
      expect(keys.press(us(letter), 400)).toEqual({ do: 'go', page });
    }
    expect(GO.map(([, page]) => page).sort()).toEqual([...PAGES].sort());
  });

  test('a letter alone, or too late, does nothing', () => {
    const keys = new Keys();
    expect(keys.press(us('l'), 0)).toEqual({ do: 'nothing' });
    keys.press(us('g'), 0);
    expect(keys.press(us('l'), 5000)).toEqual({ do: 'nothing' });
  });

  test('g is used up by the next key', () => {
    const keys = new Keys();
    keys.press(us('g'), 0);
    keys.press(us('x'), 100);
    expect(keys.press(us('l'), 200)).toEqual({ do: 'nothing' });
  });

  test('? and / work after g too', () => {
    const keys = new Keys();
    keys.press(us('g'), 0);
    expect(keys.press(us('?'), 100)).toEqual({ do: 'help' });
    expect(keys.press(us('/'), 200)).toEqual({ do: 'search' });
  });
});

describe('a Russian layout', () => {
  test('has its shortcuts where the English one has them', () => {
    const keys = new Keys();
    keys.press({ key: 'п', code: 'KeyG' }, 0);
    expect(keys.press({ key: 'д', code: 'KeyL' }, 100)).toEqual({ do: 'go', page: 'lanes' });
    expect(keys.press({ key: '.', code: 'Slash' }, 200)).toEqual({ do: 'search' });
    expect(keys.press({ key: ',', code: 'Slash' }, 300)).toEqual({ do: 'help' });
    expect(latin({ key: 'ч', code: 'KeyX' })).toBe('x');
  });

  test('has its own / and ? too', () => {
    expect(new Keys().press({ key: '/', code: 'Backslash' }, 0)).toEqual({ do: 'search' });
    expect(new Keys().press({ key: '?', code: 'Digit7' }, 0)).toEqual({ do: 'help' });
  });

  test('a capital letter is none', () => expect(latin({ key: 'П', code: 'KeyG' })).toBe('G'));
});

test('where letters are Latin they are what they say, wherever they are', () => {
  expect(latin({ key: 'g', code: 'KeyU' })).toBe('g');
  expect(latin({ key: 'é', code: 'Slash' })).toBe('é');
  expect(latin({ key: ';', code: 'KeyQ' })).toBe(';');
});
