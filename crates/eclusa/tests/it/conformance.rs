//! The conformance suite on every store: in memory; in a directory with a restart before every verb; on Redis as the owner, as
//! a process that asks an owner elsewhere, and with a takeover before every verb.

mod memory {
    use std::sync::Arc;

    use eclusa::store::EmbeddedStore;
    use eclusa_conformance::ManualClock;
    use eclusa_core::Spec;

    fn open(spec: &Spec, clock: Arc<ManualClock>) -> EmbeddedStore {
        EmbeddedStore::memory(spec, clock)
    }

    eclusa_conformance::suite!(super::open);
}

mod directory {
    use std::sync::Arc;

    use eclusa::store::{Ack, EmbeddedStore};
    use eclusa_conformance::ManualClock;
    use eclusa_core::Spec;
    use tempfile::TempDir;

    use crate::reopened::Reopened;

    fn open(spec: &Spec, clock: Arc<ManualClock>) -> Reopened<EmbeddedStore> {
        let (dir, spec) = (TempDir::new().unwrap(), spec.clone());
        let path = dir.path().to_owned();
        Reopened::always(move || EmbeddedStore::open(&path, Ack::Write, &spec, clock.clone()).unwrap(), dir)
    }

    eclusa_conformance::suite!(super::open);
}

mod redis {
    use std::sync::Arc;
    use std::time::Duration;

    use eclusa::store::{RedisSettings, RedisStore};
    use eclusa_conformance::ManualClock;
    use eclusa_core::Spec;

    use crate::redis_server::RedisServer;

    /// Short enough that an unused basin is taken at once.
    const TERM: Duration = Duration::from_millis(20);

    /// Opens stores in a new basin.
    fn basin(spec: &Spec, clock: Arc<ManualClock>) -> impl Fn(Duration) -> RedisStore + Send + Sync + use<> {
        let (server, prefix) = RedisServer::shared();
        let (url, spec) = (server.url(), spec.clone());
        move |term| {
            let settings = RedisSettings {
                prefix: prefix.clone(),
                term,
                clock: Some(clock.clone()),
                timeout: Duration::from_mins(1),
                ..RedisSettings::default()
            };
            RedisStore::open(&url, &settings, &spec).unwrap()
        }
    }

    mod owned {
        use super::{Arc, ManualClock, RedisStore, Spec, TERM, basin};

        fn open(spec: &Spec, clock: Arc<ManualClock>) -> RedisStore {
            basin(spec, clock)(TERM)
        }

        eclusa_conformance::suite!(super::open);
    }

    mod asked {
        use eclusa::store::{OwnerView, RedisSettings};

        use super::{Arc, ManualClock, RedisStore, Spec, TERM, basin};
        use crate::reopened::Reopened;

        /// The owner that is asked. If ownership ever changed, the scenario did not test asking.
        struct Asked(RedisStore, OwnerView);

        impl Drop for Asked {
            fn drop(&mut self) {
                if !std::thread::panicking() {
                    assert_eq!(self.0.owner(), Some(self.1), "the process that asks has taken over");
                }
            }
        }

        fn open(spec: &Spec, clock: Arc<ManualClock>) -> Reopened<RedisStore> {
            let open = basin(spec, clock);
            let owner = open(TERM);
            while !owner.owns() {
                std::thread::yield_now();
            }
            let first = owner.owner().unwrap();
            Reopened::once(move || open(RedisSettings::default().term), Asked(owner, first))
        }

        eclusa_conformance::suite!(super::open);
    }

    mod taken_over {
        use super::{Arc, ManualClock, RedisStore, Spec, TERM, basin};
        use crate::reopened::Reopened;

        fn open(spec: &Spec, clock: Arc<ManualClock>) -> Reopened<RedisStore> {
            let open = basin(spec, clock);
            Reopened::always(move || open(TERM), ())
        }

        eclusa_conformance::suite!(super::open);
    }
}
