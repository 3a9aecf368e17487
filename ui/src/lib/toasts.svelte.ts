/** Short messages about what was done. */

const SHOWN_MS = 5000;

export interface Toast {
  id: number;
  text: string;
  bad: boolean;
  link?: { href: string; text: string } | undefined;
}

class Toasts {
  list = $state<Toast[]>([]);
  #next = 0;

  say(text: string, bad = false, link?: Toast['link']): void {
    const id = this.#next++;
    this.list = [...this.list.slice(-2), { id, text, bad, link }];
    setTimeout(() => this.drop(id), link || bad ? SHOWN_MS * 2 : SHOWN_MS);
  }

  drop(id: number): void {
    this.list = this.list.filter((toast) => toast.id !== id);
  }
}

export const toasts = new Toasts();
