//! Register: says to a shared store that this process lives, hears who else does, and looks at what they share.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::StoreError;
use eclusa_core::gate::Part;

use crate::gateway::{Duty, Gateway, Instance};
use crate::store::{AnyStore, SharedStore};

/// A process that was not heard of for ten seconds is gone.
const EVERY: Duration = Duration::from_secs(2);

pub(super) async fn run(gateway: Arc<Gateway>) {
    let AnyStore::Redis(store) = &gateway.store else { return };
    let own = gateway.instance(store.redis().rules_version());
    loop {
        match meet(&gateway, store, &own).await {
            Ok(()) => gateway.store_answers(),
            Err(error) => {
                gateway.bear(&error).await;
            }
        }
        tokio::select! {
            () = gateway.finished.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

async fn meet(gateway: &Gateway, store: &SharedStore, own: &Instance) -> Result<(), StoreError> {
    let alive = store.redis().register(&own.id, &own.about()).await?;
    let alive: Vec<_> = alive.into_iter().map(|(id, about)| Instance::read(id, &about)).collect();
    let part = if gateway.config.store.shared_gates { part_of(&alive, own) } else { Part::WHOLE };
    store.look(part).await?;
    gateway.meet(alive);
    Ok(())
}

/// What falls to a process if nobody can ask the others. Those that only run jobs begin nothing then.
fn part_of(alive: &[Instance], own: &Instance) -> Part {
    let mut sharing: Vec<_> = alive.iter().filter(|one| one.role != Duty::Worker.as_str()).collect();
    sharing.sort_unstable_by_key(|one| &one.id);
    let place = sharing.iter().position(|one| one.id == own.id).and_then(|place| u32::try_from(place).ok());
    let parts = u32::try_from(sharing.len()).unwrap_or(u32::MAX);
    place.and_then(|place| Part::new(place, parts)).unwrap_or(Part::WHOLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: &str, role: &str) -> Instance {
        Instance { id: id.to_owned(), role: role.to_owned(), rules: String::new() }
    }

    #[test]
    fn limits_are_divided_among_those_that_begin_calls_by_themselves() {
        let [a, b, c] = [process("a", "all"), process("b", "worker"), process("c", "api")];
        let alive = [c.clone(), b.clone(), a.clone()];
        assert_eq!(part_of(&alive, &a), Part::new(0, 2).unwrap());
        assert_eq!(part_of(&alive, &c), Part::new(1, 2).unwrap());
        assert_eq!(part_of(&alive, &b), Part::WHOLE, "it begins nothing");
    }
}
