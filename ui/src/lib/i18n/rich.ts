/** Sentences with parts that are set off (names, numbers): marked in the text, cut into pieces where they are shown. */

const OPEN = '\u0001';
const CLOSE = '\u0002';

export const em = (text: string | number | null | undefined): string => `${OPEN}${text ?? ''}${CLOSE}`;

export interface Piece {
  text: string;
  strong: boolean;
}

export function pieces(sentence: string): Piece[] {
  return sentence
    .split(/\u0001([^\u0002]*)\u0002/)
    .map((text, i) => ({ text, strong: i % 2 === 1 }))
    .filter((piece) => piece.text !== '');
}

/** The sentence without marks, for labels and titles. */
export const plain = (sentence: string): string => sentence.replaceAll(OPEN, '').replaceAll(CLOSE, '');
