/** Order and shares of the tenants of a lane. */

import type { Tenant } from './types';

/** Whose turn is next first, as the server says; then those that wait, by how much. */
export function ranked(tenants: Tenant[]): Tenant[] {
  const rank = (tenant: Tenant) => (tenant.next ? 0 : tenant.queued > 0 ? 1 : 2);
  return [...tenants].sort((a, b) => rank(a) - rank(b) || b.queued - a.queued || a.companyId.localeCompare(b.companyId));
}

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
