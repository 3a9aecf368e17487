//! This process as the others see it: its id and the rules it was started with or has read since.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use eclusa_core::Spec;
use eclusa_core::layout::encode_spec;
use eclusa_fleet::ProcessId;

/// What a process that will stop soon adds to what others are told of it.
pub(super) const LEAVING: &str = " leaving";

/// See the module.
pub(super) struct Membership {
    pub(super) process: ProcessId,
    rules: RwLock<Arc<Rules>>,
    /// Whether it decides about gates by itself because it could not ask.
    alone: AtomicBool,
}

/// Rules and what is said of them.
#[derive(Clone)]
pub(super) struct Rules {
    /// When they were read, by the wall clock in milliseconds: the newest are in force.
    pub(super) stamp: u64,
    /// Role and version, for those who look at the fleet.
    pub(super) about: Arc<str>,
    pub(super) spec: Arc<Spec>,
    pub(super) encoded: Vec<u8>,
}

impl Rules {
    pub(super) fn new(stamp: u64, about: &str, spec: &Spec) -> Self {
        Self { stamp, about: about.into(), encoded: encode_spec(spec), spec: Arc::new(spec.clone()) }
    }

    /// The same, as the engine takes them.
    pub(super) fn registration(&self, process: ProcessId) -> eclusa_core::Registration {
        eclusa_core::Registration {
            process: eclusa_core::ProcessId(process.0),
            stamp: self.stamp,
            about: self.about.clone(),
            spec: self.spec.clone(),
        }
    }
}

impl Membership {
    pub(super) fn new(process: ProcessId, rules: Rules) -> Self {
        Self { process, rules: RwLock::new(Arc::new(rules)), alone: AtomicBool::new(false) }
    }

    /// Whether it decides about gates by itself because it could not ask.
    pub(super) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Relaxed)
    }

    pub(super) fn set_alone(&self, alone: bool) {
        self.alone.store(alone, Ordering::Relaxed);
    }

    pub(super) fn rules(&self) -> Arc<Rules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Others are told from now on that this process will stop soon. Its rules stay as old as they are.
    pub(super) fn set_leaving(&self) -> Arc<Rules> {
        let mut current = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let about = format!("{}{LEAVING}", current.about).into();
        *current = Arc::new(Rules { about, ..Rules::clone(&current) });
        current.clone()
    }

    /// Goes by other rules from now on. Their stamp is above the old one, whatever the clock says.
    pub(super) fn change(&self, mut rules: Rules) -> Arc<Rules> {
        let mut current = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        rules.stamp = rules.stamp.max(current.stamp + 1);
        *current = Arc::new(rules);
        current.clone()
    }
}
