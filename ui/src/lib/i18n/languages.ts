export const LANGUAGES = ['en', 'pt-BR', 'ru'] as const;
export type Language = (typeof LANGUAGES)[number];

/** The first that the reader prefers and that exists; any Portuguese is the Brazilian one. */
export function preferred(wanted: readonly string[]): Language {
  for (const tag of wanted) {
    const base = tag.toLowerCase().split('-')[0];
    const found = LANGUAGES.find((known) => known.toLowerCase().split('-')[0] === base);
    if (found) return found;
  }
  return 'en';
}
