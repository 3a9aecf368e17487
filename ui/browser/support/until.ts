import { setTimeout as pause } from 'node:timers/promises';

/** How long anything expected may take, on any machine. */
export const PATIENCE_MS = 60_000;

/** Asks until the answer is something, and returns it. `last` is shown when that takes too long. */
export async function until<T>(
  what: string,
  ask: () => Promise<T | undefined | false> | T | undefined | false,
  last: () => unknown = () => '',
): Promise<T> {
  const deadline = Date.now() + PATIENCE_MS;
  for (;;) {
    const answer = await ask();
    if (answer !== undefined && answer !== false) return answer;
    if (Date.now() > deadline) throw new Error(`not within ${PATIENCE_MS / 1000} s: ${what} ${JSON.stringify(last())}`);
    await pause(25);
  }
}
