/** The language: chosen by the browser, switchable, remembered. */

import { setFormat } from '../format';
import { en, type Messages } from './en';
import { ptBR } from './pt-BR';
import { ru } from './ru';
import { LANGUAGES, preferred, type Language } from './languages';

const KEY = 'eclusa.language';
const dictionaries: Record<Language, Messages> = { en, 'pt-BR': ptBR, ru };

/** The texts. A live binding: the app is mounted again when the language changes. */
export let m: Messages = en;

class Choice {
  language = $state<Language>('en');

  constructor() {
    const stored = localStorage.getItem(KEY);
    this.#apply(LANGUAGES.find((known) => known === stored) ?? preferred(navigator.languages));
  }

  set(language: Language): void {
    localStorage.setItem(KEY, language);
    this.#apply(language);
  }

  #apply(language: Language): void {
    m = dictionaries[language];
    setFormat(language, m.units, m.sizes);
    document.documentElement.lang = language;
    this.language = language;
  }
}

export const i18n = new Choice();
export const names: Record<Language, string> = { en: en.language, 'pt-BR': ptBR.language, ru: ru.language };
