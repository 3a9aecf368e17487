/** How fast something goes on, and when it will be done. */

export interface Pace {
  perSecond: number;
  /** Seconds to the end at this pace; absent while that is unknown. */
  leftSec: number | undefined;
}

export function pace(done: number, rest: number, seconds: number): Pace {
  const perSecond = done / Math.max(1, seconds);
  return { perSecond, leftSec: perSecond > 0 && rest > 0 ? rest / perSecond : undefined };
}
