//! The conformance suite on every store: embedded in memory, embedded with a restart before every verb, Redis.

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

mod restarting {
    eclusa_conformance::suite!(crate::restarting::Restarting::new);
}

mod redis {
    use std::sync::Arc;

    use eclusa::store::RedisStore;
    use eclusa_conformance::ManualClock;
    use eclusa_core::Spec;

    use crate::redis_server::RedisServer;

    fn open(spec: &Spec, clock: Arc<ManualClock>) -> RedisStore {
        let (server, prefix) = RedisServer::shared();
        RedisStore::new(&server.url(), &prefix, spec).unwrap().with_clock(clock)
    }

    eclusa_conformance::suite!(super::open);
}
