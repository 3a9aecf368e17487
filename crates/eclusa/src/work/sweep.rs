//! Sweep: queues jobs that are due, drops expired ones, recovers those of dead workers, forgets what is past its
//! retention.

use std::sync::Arc;

use super::until;
use crate::decide::Decider;
use crate::life::Life;

pub(super) async fn run(decider: Arc<Decider>, life: Arc<Life>) {
    loop {
        let swept = match decider.sweep().await {
            Ok(swept) => swept,
            Err(error) if decider.wait_out_outage(&error).await && !life.stopping.is_cancelled() => continue,
            Err(_) => return,
        };
        decider.store_answers();
        tokio::select! {
            () = life.stopping.cancelled() => return,
            () = tokio::time::sleep(until(swept.next, swept.now)) => {}
        }
    }
}
