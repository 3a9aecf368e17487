/** How far a replay is. */

import type { Replay } from './types';

export interface Progress {
  /** Letters whose replay has ended, well or not. */
  done: number;
  share: number;
  perSecond: number;
  /** Seconds to the end at this pace; absent while that is unknown. */
  leftSec: number | undefined;
}

export function progress(replay: Replay, now: number): Progress {
  const done = replay.replayed + replay.failed;
  const end = replay.endedAt ? Date.parse(replay.endedAt) : now;
  const seconds = Math.max(1, (end - Date.parse(replay.startedAt)) / 1000);
  const perSecond = done / seconds;
  const rest = replay.running + replay.remaining;
  const finished = replay.status === 'done';
  return {
    done,
    share: replay.total > 0 ? done / replay.total : finished ? 1 : 0,
    perSecond,
    leftSec: perSecond > 0 && rest > 0 ? rest / perSecond : undefined,
  };
}
