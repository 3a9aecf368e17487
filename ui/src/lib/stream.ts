/**
 * One stream of `GET /v1/events`, and what it says. It runs in a shared worker, or in the tab where there are none.
 *
 * The browser reconnects by itself when the connection breaks, and resumes where it was. When the server refuses the stream
 * (it is stopping, has too many streams, or is older than the call), it is opened anew every few seconds.
 */

import { EVENT_TYPES, type Event } from './reduce';

/** Between two attempts to open a stream that was refused. */
const RETRY_MS = 5000;

export type Said = { say: 'event'; event: Event } | { say: 'live' } | { say: 'lost' } | { say: 'refused' };

export class Stream {
  #source: EventSource | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly say: (said: Said) => void) {}

  open(): void {
    this.close();
    const source = new EventSource('/v1/events');
    this.#source = source;
    for (const type of EVENT_TYPES) {
      source.addEventListener(type, ({ data }) => this.say({ say: 'event', event: { type, data: JSON.parse(data) } as Event }));
    }
    source.onopen = () => this.say({ say: 'live' });
    source.onerror = () => {
      if (source.readyState !== EventSource.CLOSED) return this.say({ say: 'lost' });
      this.#timer = setTimeout(() => this.open(), RETRY_MS);
      this.say({ say: 'refused' });
    };
  }

  close(): void {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = undefined;
  }
}
