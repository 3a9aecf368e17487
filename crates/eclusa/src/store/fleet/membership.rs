//! This process as the others see it: its id and its current rules.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use eclusa_core::Spec;
use eclusa_core::layout::encode_spec;
use eclusa_fleet::ProcessId;

/// The suffix of `about` for a process that will stop soon.
pub(super) const LEAVING: &str = " leaving";

/// See the module.
pub(super) struct Membership {
    pub(super) process: ProcessId,
    rules: RwLock<Arc<MemberRules>>,
    /// Whether this process decides about gates locally because it could not ask.
    in_fallback: AtomicBool,
}

/// The rules of a process, with their description.
#[derive(Clone)]
pub(super) struct MemberRules {
    /// When they were read, in milliseconds of the wall clock: the newest apply.
    pub(super) stamp: u64,
    /// Role and version, for displays of the fleet.
    pub(super) about: Arc<str>,
    pub(super) spec: Arc<Spec>,
    pub(super) encoded: Vec<u8>,
}

impl MemberRules {
    pub(super) fn new(stamp: u64, about: &str, spec: &Spec) -> Self {
        Self { stamp, about: about.into(), encoded: encode_spec(spec), spec: Arc::new(spec.clone()) }
    }

    /// The rules as the engine registers them.
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
    pub(super) fn new(process: ProcessId, rules: MemberRules) -> Self {
        Self { process, rules: RwLock::new(Arc::new(rules)), in_fallback: AtomicBool::new(false) }
    }

    /// Whether this process decides about gates locally because it could not ask.
    pub(super) fn is_in_fallback(&self) -> bool {
        self.in_fallback.load(Ordering::Relaxed)
    }

    pub(super) fn set_in_fallback(&self, in_fallback: bool) {
        self.in_fallback.store(in_fallback, Ordering::Relaxed);
    }

    pub(super) fn rules(&self) -> Arc<MemberRules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Marks this process as leaving, for the others. The stamp of its rules does not change.
    pub(super) fn set_leaving(&self) -> Arc<MemberRules> {
        let mut current = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let about = format!("{}{LEAVING}", current.about).into();
        *current = Arc::new(MemberRules { about, ..MemberRules::clone(&current) });
        current.clone()
    }

    /// Applies other rules from now on. Their stamp is above the old one, whatever the clock says.
    pub(super) fn change(&self, mut rules: MemberRules) -> Arc<MemberRules> {
        let mut current = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        rules.stamp = rules.stamp.max(current.stamp + 1);
        *current = Arc::new(rules);
        current.clone()
    }
}
