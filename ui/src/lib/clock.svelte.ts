/** The server's time, ticking: countdowns read `clock.now`. Stops while the page is hidden. */

const TICK_MS = 500;

class Clock {
  /** Milliseconds since 1970, by the server's clock. */
  now = $state(Date.now());
  #offset = 0;

  constructor() {
    const tick = () => {
      if (!document.hidden) this.now = Date.now() + this.#offset;
    };
    setInterval(tick, TICK_MS);
    document.addEventListener('visibilitychange', tick);
  }

  /** The server said what time it is. Small differences are the network's. */
  set(serverTime: string, heardAt = Date.now()): void {
    const offset = Date.parse(serverTime) - heardAt;
    if (Number.isFinite(offset)) this.#offset = Math.abs(offset) < 1500 ? 0 : offset;
  }
}

export const clock = new Clock();
