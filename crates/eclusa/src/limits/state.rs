//! The gates of one API: on Redis while it answers, else in this process.

use std::sync::Arc;

use eclusa_core::gate::GateSpecs;
use eclusa_core::{Name, Span, Spec, UpstreamSpec};

use super::{Limits, LimitsError};
use crate::SystemClock;
use crate::store::{AnyStore, EmbeddedStore, RedisStore, SharedStore, WhenLost};

pub(super) struct State {
    pub(super) name: Name,
    pub(super) store: AnyStore,
}

impl State {
    pub(super) fn new(limits: &Limits, name: &str, gates: GateSpecs) -> Result<Self, LimitsError> {
        let (name, clock) = (Name::new(name)?, Arc::new(SystemClock));
        // One upstream alone cannot be at odds with another.
        let spec = Spec::new(Vec::new(), vec![UpstreamSpec::new(name.clone(), gates)]).unwrap_or_default();
        let store = match &limits.redis {
            Some(url) => {
                let redis = RedisStore::new(url, &limits.prefix, &spec)?;
                AnyStore::Redis(Box::new(SharedStore::new(redis, &spec, WhenLost::Share, Span::ZERO, clock)))
            }
            None => AnyStore::Embedded(Box::new(EmbeddedStore::memory(&spec, clock))),
        };
        Ok(Self { name, store })
    }
}
