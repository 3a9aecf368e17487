/** Lists that are filtered by the query in the address and grow page by page, so that millions of items are no problem. */

import { ApiError } from './api';
import { Resource } from './resource.svelte';
import { router } from './router.svelte';

export type Filter = Record<string, string>;

/** The parts of the address that filter the list. */
export function chosenFilter(names: readonly string[]): Filter {
  const { query } = router.route;
  return Object.fromEntries(names.flatMap((name) => (query[name] ? [[name, query[name]]] : [])));
}

interface Page<T> {
  items: T[];
  cursor: string | undefined;
}

export class Paged<T> {
  readonly #first: Resource<Page<T>>;
  /** What was appended to the first page, and where the next one begins. */
  #rest = $state.raw<Page<T>>({ items: [], cursor: undefined });
  #appending = $state(false);
  #failure = $state.raw<ApiError | undefined>();

  constructor(private readonly page: (cursor?: string) => Promise<Page<T>>) {
    this.#first = new Resource(() => page());
  }

  get items(): T[] {
    return [...(this.#first.data?.items ?? []), ...this.#rest.items];
  }
  /** Whether the first page is there. */
  get ready(): boolean {
    return this.#first.data !== undefined;
  }
  get error(): ApiError | undefined {
    return this.#first.error;
  }
  /** Why the next page is not there. */
  get moreError(): ApiError | undefined {
    return this.#failure;
  }
  get hasMore(): boolean {
    return this.#rest.cursor !== undefined;
  }
  get appending(): boolean {
    return this.#appending;
  }

  /** The first page again. */
  async load(): Promise<void> {
    await this.#first.load();
    this.#rest = { items: [], cursor: this.#first.data?.cursor };
    this.#failure = undefined;
  }

  /** Appends the next page. */
  async more(): Promise<void> {
    const before = this.#rest;
    this.#appending = true;
    try {
      const { items, cursor } = await this.page(before.cursor);
      // Another list may have been loaded meanwhile.
      if (this.#rest === before) this.#rest = { items: [...before.items, ...items], cursor };
      this.#failure = undefined;
    } catch (error) {
      this.#failure = error instanceof ApiError ? error : new ApiError(0, 'unknown', String(error));
    } finally {
      this.#appending = false;
    }
  }

  /** Forgets what is shown: another filter is asked for now. */
  reset(): void {
    this.#first.reset();
    this.#rest = { items: [], cursor: undefined };
    this.#failure = undefined;
  }

  dispose(): void {
    this.#first.dispose();
  }
}
