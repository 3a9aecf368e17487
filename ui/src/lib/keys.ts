/** The keyboard: `?` shows help, `/` searches, `g` and a letter goes to a page. */

import type { Page } from './routes';

export const GO: readonly (readonly [string, Page])[] = [
  ['o', 'overview'],
  ['l', 'lanes'],
  ['u', 'upstreams'],
  ['j', 'jobs'],
  ['t', 'tenants'],
  ['d', 'dead-letters'],
  ['p', 'policies'],
  ['f', 'fleet'],
  ['a', 'alerts'],
];

/** How long `g` waits for its letter. */
const WAIT_MS = 1500;

export type Stroke = { do: 'help' } | { do: 'search' } | { do: 'go'; page: Page } | { do: 'nothing' };

/** What of a keyboard event says which key it was. */
export type Press = Pick<KeyboardEvent, 'key' | 'code'>;

/** The key of a Latin layout: where letters are Cyrillic or Greek, the place of the key says which is meant. */
export function latin({ key, code }: Press): string {
  if (/^[^\p{Script=Latin}\P{L}]$/u.test(key) && /^Key[A-Z]$/.test(code)) {
    const letter = code.slice(3);
    return key === key.toLowerCase() ? letter.toLowerCase() : letter;
  }
  // The Russian layout has these where `/` and `?` are on an English keyboard.
  if (code === 'Slash') return { '.': '/', ',': '?' }[key] ?? key;
  return key;
}

export class Keys {
  #prefixAt = Number.NEGATIVE_INFINITY;

  /** What a key means that is pressed outside of fields and dialogs. */
  press(press: Press, now: number): Stroke {
    const key = latin(press);
    const prefixed = now - this.#prefixAt < WAIT_MS;
    this.#prefixAt = Number.NEGATIVE_INFINITY;
    if (prefixed) {
      const target = GO.find(([letter]) => letter === key);
      if (target) return { do: 'go', page: target[1] };
    }
    if (key === 'g') this.#prefixAt = now;
    if (key === '?') return { do: 'help' };
    if (key === '/') return { do: 'search' };
    return { do: 'nothing' };
  }
}

/** Whether the key belongs to what has the focus. */
export function typing(target: EventTarget | null): boolean {
  return target instanceof Element && target.closest('input, textarea, select, [contenteditable], dialog') !== null;
}
