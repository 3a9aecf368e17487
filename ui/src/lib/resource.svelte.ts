/** Something fetched: the newest answer, or why there is none. Older answers that arrive late are ignored. */

import { ApiError } from './api';

export class Resource<T> {
  data = $state.raw<T | undefined>();
  error = $state.raw<ApiError | undefined>();
  loading = $state(false);
  #turn = 0;
  #lastLoad = 0;
  /** Gives up the load that is planned. */
  #unplan: (() => void) | undefined;

  constructor(private readonly fetcher: () => Promise<T>) {}

  async load(): Promise<void> {
    const turn = ++this.#turn;
    this.#lastLoad = Date.now();
    this.loading = true;
    try {
      const data = await this.fetcher();
      if (turn !== this.#turn) return;
      this.data = data;
      this.error = undefined;
    } catch (error) {
      if (turn !== this.#turn) return;
      this.error = error instanceof ApiError ? error : new ApiError(0, 'unknown', String(error));
    } finally {
      if (turn === this.#turn) this.loading = false;
    }
  }

  /** Forgets what is shown: another thing is asked for now. */
  reset(): void {
    this.#turn++;
    this.data = undefined;
    this.error = undefined;
  }

  /** Loads again soon, at most once per `everyMs`: for what the stream says has changed. While nobody looks, that waits. */
  refresh(everyMs = 2000): void {
    if (this.#unplan) return;
    const due = () => {
      if (document.hidden) {
        document.addEventListener('visibilitychange', due, { once: true });
        this.#unplan = () => document.removeEventListener('visibilitychange', due);
        return;
      }
      this.#unplan = undefined;
      void this.load();
    };
    const timer = setTimeout(due, Math.max(0, this.#lastLoad + everyMs - Date.now()));
    this.#unplan = () => clearTimeout(timer);
  }

  /** No more loads: the page is gone. */
  dispose(): void {
    this.#turn++;
    this.#unplan?.();
    this.#unplan = undefined;
  }
}
