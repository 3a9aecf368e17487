/** Lists that are filtered by the query in the address and grow page by page, so that millions of items are no problem. */

import { ApiError } from './api';
import { router } from './router.svelte';

export type Filter = Record<string, string>;

/** The parts of the address that filter the list. */
export function chosenFilter(names: readonly string[]): Filter {
  const { query } = router.route;
  return Object.fromEntries(names.flatMap((name) => (query[name] ? [[name, query[name]]] : [])));
}

interface Page<T> {
  items: T[];
  /** Where the next one begins; absent at the end. */
  cursor: string | undefined;
}

/** A search for a page. */
export interface Search {
  /** Where it begins; absent at the beginning. */
  cursor: string | undefined;
  /** Aborted when nobody wants the page any more. */
  signal: AbortSignal;
  /** Takes how far the search is while it has found less than a page. */
  reached: (cursor: string | undefined) => void;
}

const NONE: Page<never> = { items: [], cursor: undefined };

export class Paged<T> {
  #found = $state.raw<Page<T>>(NONE);
  #ready = $state(false);
  #failure = $state.raw<{ error: ApiError; first: boolean } | undefined>();
  #reached = $state<string | undefined>();
  /** Ends the search that is under way. */
  #search = $state.raw<AbortController | undefined>();

  constructor(private readonly page: (search: Search) => Promise<Page<T>>) {}

  get items(): T[] {
    return this.#found.items;
  }
  /** Whether the first page is there. */
  get ready(): boolean {
    return this.#ready;
  }
  get error(): ApiError | undefined {
    return this.#failure?.first ? this.#failure.error : undefined;
  }
  /** Why the next page is not there. */
  get moreError(): ApiError | undefined {
    return this.#failure?.first ? undefined : this.#failure?.error;
  }
  get hasMore(): boolean {
    return this.#found.cursor !== undefined;
  }
  get searching(): boolean {
    return this.#search !== undefined;
  }
  /** How far the list has been searched, if that has not filled the last page. */
  get reached(): string | undefined {
    return this.#reached;
  }

  /** The first page again. */
  load(): Promise<void> {
    return this.#look(NONE);
  }

  /** Appends the next page. */
  more(): Promise<void> {
    return this.#look(this.#found);
  }

  /** Looks for the page after `before`. Whatever was looked for until now is wanted no longer. */
  async #look(before: Page<T>): Promise<void> {
    this.#search?.abort();
    const search = (this.#search = new AbortController());
    const { signal } = search;
    const reached = (cursor: string | undefined) => {
      if (!signal.aborted) this.#reached = cursor;
    };
    try {
      const { items, cursor } = await this.page({ cursor: before.cursor, signal, reached });
      if (signal.aborted) return;
      this.#found = { items: [...before.items, ...items], cursor };
      this.#ready = true;
      this.#failure = undefined;
    } catch (error) {
      if (signal.aborted) return;
      const known = error instanceof ApiError ? error : new ApiError(0, 'unknown', String(error));
      this.#failure = { error: known, first: before === NONE };
    }
    this.#search = undefined;
  }

  /** Forgets what is shown: another filter is asked for now. */
  reset(): void {
    this.dispose();
    this.#found = NONE;
    this.#ready = false;
    this.#failure = undefined;
    this.#reached = undefined;
  }

  dispose(): void {
    this.#search?.abort();
    this.#search = undefined;
  }
}
