//! Sweep: lets scheduled jobs in, drops expired ones, takes up those of dead workers, forgets what is kept no longer.

use std::sync::Arc;

use eclusa_core::{Store, Surplus, Swept};

use super::until;
use crate::gateway::Gateway;

pub(super) async fn run(gateway: Arc<Gateway>) {
    loop {
        let swept = match gateway.store.sweep().await {
            Ok(swept) => swept,
            Err(error) if gateway.bear(&error).await && !gateway.life.stopping.is_cancelled() => continue,
            Err(_) => return,
        };
        gateway.store_answers();
        tell(&gateway, &swept);
        tokio::select! {
            () = gateway.life.stopping.cancelled() => return,
            () = tokio::time::sleep(until(swept.next, swept.now)) => {}
        }
    }
}

fn tell(gateway: &Gateway, swept: &Swept) {
    gateway.note(&swept.ended);
    gateway.note_taken_up(&swept.taken_up);
    for (lane, job, surplus) in &swept.dead_letters {
        let reason = match surplus {
            Surplus::Expired => "ttl",
            Surplus::OverCap => "max",
        };
        gateway.metrics.count_trimmed_letter(lane, reason);
        tracing::warn!(jobId = %job, lane = %lane, reason, "Dead letter removed");
    }
}
