/** How full buckets are. */

import type { Policy } from './types';

/** What is left, 0…1; a debt is nothing left. */
export function leftShare(policy: Policy): number {
  return policy.capacity > 0 ? Math.min(1, Math.max(0, policy.availableTokens / policy.capacity)) : 0;
}

/** Seconds until it is full if nobody takes from it; 0 when it is. */
export function fullInSec(policy: Policy): number {
  const missing = policy.capacity - policy.availableTokens;
  if (missing <= 0) return 0;
  return policy.refillTokens > 0 ? (missing / policy.refillTokens) * policy.refillPeriodSec : Number.POSITIVE_INFINITY;
}
