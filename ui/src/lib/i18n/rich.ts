/** Sentences with parts that are set off (names, numbers): marked in the text, cut into pieces where they are shown. */

const OPEN = '\u0001';
const CLOSE = '\u0002';
/** Before and after the moment of a text that names it. */
const AT = '\u0003';
const NAMED = '\u0004';

export const em = (text: string | number | null | undefined): string => `${OPEN}${text ?? ''}${CLOSE}`;

/** What is known of several parts, after a colon. */
export const most = (...parts: (string | undefined)[]): string => {
  const known = parts.filter((part) => part !== undefined);
  return known.length > 0 ? `: ${known.join(', ')}` : '';
};

/** A time as it is read, and the moment it means. */
export const moment = (at: string, text: string): string => `${OPEN}${AT}${at}${NAMED}${text}${CLOSE}`;

export interface Piece {
  text: string;
  strong: boolean;
  /** The text is this time. */
  at?: string;
}

export function pieces(sentence: string): Piece[] {
  return sentence
    .split(/\u0001([^\u0002]*)\u0002/)
    .map((text, i): Piece => {
      const [, at, named] = /^\u0003([^\u0004]*)\u0004(.*)$/.exec(text) ?? [];
      return at !== undefined && named !== undefined ? { text: named, strong: false, at } : { text, strong: i % 2 === 1 };
    })
    .filter((piece) => piece.text !== '');
}

/** The sentence without marks, for labels and titles. */
export const plain = (sentence: string): string =>
  pieces(sentence)
    .map(({ text }) => text)
    .join('');
