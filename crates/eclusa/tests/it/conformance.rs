//! The conformance suite on the embedded store: in memory, and with a restart before every verb.

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
