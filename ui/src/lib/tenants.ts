/** Shares of the tenants of a lane. */

import type { Tenant } from './types';

/** What each has been served of all, and what its weight alone would give it. */
export function shares(tenants: Tenant[]): Map<string, { served: number; fair: number }> {
  const served = tenants.reduce((sum, tenant) => sum + tenant.totalProcessed, 0);
  const weights = tenants.reduce((sum, tenant) => sum + tenant.weight, 0);
  return new Map(
    tenants.map((tenant) => [
      tenant.companyId,
      { served: served > 0 ? tenant.totalProcessed / served : 0, fair: weights > 0 ? tenant.weight / weights : 0 },
    ]),
  );
}
