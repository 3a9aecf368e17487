/** How far a replay is. */

import { pace, type Pace } from './pace';
import type { Replay } from './types';

export interface Progress extends Pace {
  /** Letters whose replay has ended, well or not. */
  done: number;
  share: number;
}

export function progress(replay: Replay, now: number): Progress {
  const done = replay.replayed + replay.failed;
  const end = replay.endedAt ? Date.parse(replay.endedAt) : now;
  const seconds = (end - Date.parse(replay.startedAt)) / 1000;
  const finished = replay.status === 'done';
  return {
    done,
    share: replay.total > 0 ? done / replay.total : finished ? 1 : 0,
    ...pace(done, replay.running + replay.remaining, seconds),
  };
}
