/** Light, dark, or as the system says. */

export type Theme = 'auto' | 'light' | 'dark';
const KEY = 'eclusa.theme';

function stored(): Theme {
  const value = localStorage.getItem(KEY);
  return value === 'light' || value === 'dark' ? value : 'auto';
}

class Themes {
  chosen = $state<Theme>(stored());
  /** Rises whenever colours change: charts are drawn again. */
  version = $state(0);

  constructor() {
    this.#apply();
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.version++);
  }

  set(theme: Theme): void {
    this.chosen = theme;
    localStorage.setItem(KEY, theme);
    this.#apply();
    this.version++;
  }

  #apply(): void {
    const root = document.documentElement;
    if (this.chosen === 'auto') root.removeAttribute('data-theme');
    else root.dataset.theme = this.chosen;
  }
}

export const theme = new Themes();
