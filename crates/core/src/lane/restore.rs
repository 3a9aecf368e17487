//! A lane's tenants, changed as their records say.

use super::{Lane, Tenant};
use crate::table::TenantIx;

impl Lane {
    /// Changes what is remembered of a tenant, as its records say; where it stands ready it does so at its new place.
    pub(crate) fn restore_tenant(&mut self, tenant: TenantIx, change: impl FnOnce(&mut Tenant)) {
        self.stand_everywhere(tenant, false);
        self.tenants.restore(tenant, change);
        self.stand_everywhere(tenant, true);
    }

    fn stand_everywhere(&mut self, tenant: TenantIx, ready: bool) {
        for (level, state) in self.levels.iter_mut().zip(&self.tenants[tenant].levels) {
            for (group, ..) in state.heads() {
                level.turns.stand(tenant, state.place.unwrap_or_default(), group, ready);
            }
        }
    }

    /// Removes a tenant that the records say is forgotten; `false` if it has jobs.
    pub(crate) fn restore_tenant_gone(&mut self, tenant: TenantIx) -> bool {
        for level in &mut self.levels {
            level.turns.current.take_if(|current| *current == tenant);
        }
        self.tenants.restore_gone(tenant)
    }
}
