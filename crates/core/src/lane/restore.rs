//! Restores a lane's tenants from records.

use super::{Lane, Tenant};
use crate::job::Level;
use crate::table::TenantIx;

impl Lane {
    /// Applies a tenant's record, and moves the tenant to its new place where it is ready.
    pub(crate) fn restore_tenant(&mut self, tenant: TenantIx, change: impl FnOnce(&mut Tenant)) {
        self.set_ready_everywhere(tenant, false);
        self.tenants.restore(tenant, change);
        self.set_ready_everywhere(tenant, true);
    }

    fn set_ready_everywhere(&mut self, tenant: TenantIx, ready: bool) {
        for level in Level::ALL {
            let Some(state) = self.tenants[tenant].level(level) else { continue };
            for (group, ..) in state.heads() {
                self.levels[level as usize].turns.set_ready(
                    tenant,
                    state.place.unwrap_or_default(),
                    group,
                    ready,
                );
            }
        }
    }

    /// Removes a tenant as the records say; `false` if it still has jobs.
    pub(crate) fn restore_tenant_gone(&mut self, tenant: TenantIx) -> bool {
        for level in &mut self.levels {
            level.turns.current.take_if(|current| *current == tenant);
        }
        self.tenants.restore_gone(tenant)
    }
}
