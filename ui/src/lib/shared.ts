/**
 * The stream of all tabs of a browser: HTTP/1.1 allows six connections per host, so a stream per tab would leave none for the
 * seventh. Knows what has been said, so that a tab that opens later need not wait for anything. Pure but for its stream, so
 * that it can be tested.
 */

import { EMPTY, reduce, type State } from './reduce';
import type { Said } from './stream';

/** What a tab tells the worker. Another `who` has another view: the stream begins anew. */
export type Told = { tell: 'join'; who: string } | { tell: 'leave' } | { tell: 'renew' };

/** What the worker tells a tab: what the stream says, all of it so far, or that another key has signed in. */
export type Heard =
  | Said
  | { say: 'state'; state: State; /** By the clock of this machine, when the snapshot came. */ heardAt: number }
  | { say: 'other' };

export interface Tab {
  postMessage(heard: Heard): void;
}

interface Source {
  open(): void;
  close(): void;
}

export class Shared {
  readonly #tabs = new Set<Tab>();
  readonly #stream: Source;
  #who: string | undefined;
  #state: State = EMPTY;
  #heardAt = 0;
  #isLive = false;

  constructor(stream: (say: (said: Said) => void) => Source) {
    this.#stream = stream((said) => this.#hear(said));
  }

  tell(tab: Tab, told: Told): void {
    switch (told.tell) {
      case 'join':
        return this.#join(tab, told.who);
      case 'leave':
        this.#tabs.delete(tab);
        if (this.#tabs.size === 0) this.#end();
        return;
      case 'renew':
        // Whoever signed out has left; the others learn it from the refusal.
        if (this.#tabs.size > 0) this.#stream.open();
    }
  }

  #join(tab: Tab, who: string): void {
    const others = [...this.#tabs].filter((one) => one !== tab);
    this.#tabs.add(tab);
    if (who !== this.#who) {
      this.#end();
      this.#who = who;
      this.#stream.open();
      for (const other of others) other.postMessage({ say: 'other' });
      return;
    }
    if (this.#state.at !== undefined) tab.postMessage({ say: 'state', state: this.#state, heardAt: this.#heardAt });
    if (this.#isLive) tab.postMessage({ say: 'live' });
    else if (this.#state.at !== undefined) tab.postMessage({ say: 'lost' });
  }

  #end(): void {
    this.#stream.close();
    this.#who = undefined;
    this.#state = EMPTY;
    this.#isLive = false;
  }

  #hear(said: Said): void {
    if (said.say === 'event') {
      this.#state = reduce(this.#state, said.event);
      if (said.event.type === 'snapshot') this.#heardAt = Date.now();
    } else {
      this.#isLive = said.say === 'live';
    }
    for (const tab of this.#tabs) tab.postMessage(said);
  }
}
