//! A toy engine: jobs, leases with a limit, a count of tokens, rules, time. Its state is a fold over records.

use std::collections::BTreeMap;

use eclusa_fleet::ProcessId;

use crate::bugs::Bug;

/// How many leases there may be at a time.
pub(crate) const SLOTS: usize = 3;
/// How many tokens there are.
pub(crate) const TOKENS: u64 = 40;
/// How long a lease lasts, in ms.
pub(crate) const LEASE_MS: u64 = 3_000;

/// A lease: the epoch of the term that granted it, and a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeaseId {
    /// The epoch of the term.
    pub(crate) epoch: u64,
    /// Counts the leases of the term.
    pub(crate) count: u64,
}

/// The thing that a record describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// A job.
    Job(u64),
    /// A lease.
    Lease(LeaseId),
    /// The tokens.
    Spent,
    /// The rules of a process.
    Rule(ProcessId),
}

/// The state of one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    /// A job that waits.
    Waiting,
    /// A job that runs under a lease.
    Leased(LeaseId),
    /// A job that was ended by a lease.
    Done(LeaseId),
    /// A lease of a job.
    Lease {
        /// The job.
        job: u64,
        /// Asker and sequence number of the question that got it.
        nonce: (ProcessId, u64),
        /// Engine time at which it ends.
        until: u64,
    },
    /// How many tokens are spent.
    Spent(u64),
    /// The rules that a process registered.
    Rule {
        /// When the process that brought them started.
        stamp: u64,
        /// The number of the registration.
        order: u64,
    },
}

/// The new state of one thing; `None` if it was removed.
pub(crate) type Record = (Key, Option<Value>);
/// The state of everything.
pub(crate) type State = BTreeMap<Key, Value>;

/// Applies a record.
pub(crate) fn apply(state: &mut State, (key, value): Record) {
    match value {
        Some(value) => state.insert(key, value),
        None => state.remove(&key),
    };
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub(crate) struct Engine {
    /// The current state.
    pub(crate) state: State,
    /// Changes that are in no chunk yet.
    pub(crate) staged: BTreeMap<Key, Option<Value>>,
    /// Leases that expired since the last chunk, with the true time.
    pub(crate) expired: Vec<(LeaseId, u64)>,
    /// True time, for the checkers.
    pub(crate) true_now: u64,
    /// Never falls.
    pub(crate) time: u64,
    /// The epoch of the leases that it grants.
    pub(crate) epoch: u64,
    leases: u64,
    registrations: u64,
}

impl Engine {
    fn set(&mut self, key: Key, value: Option<Value>) {
        apply(&mut self.state, (key, value));
        self.staged.insert(key, value);
    }

    /// Starts to grant leases under a term.
    pub(crate) fn begin(&mut self, epoch: u64, bug: Option<Bug>) {
        self.leases = 0;
        self.epoch = epoch;
        if bug == Some(Bug::LeaseEpochFromRestore) {
            let highest = self.state.iter().filter_map(|(key, value)| match (key, value) {
                (Key::Lease(lease), _) | (_, Value::Done(lease)) => Some(lease.epoch),
                _ => None,
            });
            self.epoch = highest.max().unwrap_or(0) + 1;
        }
    }

    /// Accepts a job, once.
    pub(crate) fn enqueue(&mut self, job: u64, bug: Option<Bug>) {
        if bug == Some(Bug::JobAcceptedAgain) || !self.state.contains_key(&Key::Job(job)) {
            self.set(Key::Job(job), Some(Value::Waiting));
        }
    }

    /// A lease of a waiting job, or the lease that the same question got before; `None` if nothing can start.
    pub(crate) fn dispatch(&mut self, nonce: (ProcessId, u64), bug: Option<Bug>) -> Option<(LeaseId, u64)> {
        let found =
            self.leases().find(|(_, _, of, _)| *of == nonce).map(|(lease, _, _, until)| (lease, until));
        if found.is_some() && bug != Some(Bug::DispatchGrantedTwice) {
            return found;
        }
        if self.leases().count() >= SLOTS {
            return None;
        }
        let waiting = self.state.iter().find_map(|(key, value)| match (key, value) {
            (Key::Job(job), Value::Waiting) => Some(*job),
            _ => None,
        });
        let job = waiting?;
        self.leases += 1;
        let lease = LeaseId { epoch: self.epoch, count: self.leases };
        let until = self.time + LEASE_MS;
        self.set(Key::Lease(lease), Some(Value::Lease { job, nonce, until }));
        self.set(Key::Job(job), Some(Value::Leased(lease)));
        Some((lease, until))
    }

    /// Ends a job; false if the lease is not valid.
    pub(crate) fn settle(&mut self, lease: LeaseId) -> bool {
        if let Some(Value::Lease { job, .. }) = self.state.get(&Key::Lease(lease)).copied() {
            self.set(Key::Lease(lease), None);
            self.set(Key::Job(job), Some(Value::Done(lease)));
            return true;
        }
        self.state.values().any(|value| *value == Value::Done(lease))
    }

    /// Takes a token.
    pub(crate) fn spend(&mut self) -> bool {
        let spent = match self.state.get(&Key::Spent) {
            Some(Value::Spent(spent)) => *spent,
            _ => 0,
        };
        if spent >= TOKENS {
            return false;
        }
        self.set(Key::Spent, Some(Value::Spent(spent + 1)));
        true
    }

    /// The rules of a process.
    pub(crate) fn register(&mut self, process: ProcessId, stamp: u64) {
        self.registrations += 1;
        let order = self.registrations;
        self.set(Key::Rule(process), Some(Value::Rule { stamp, order }));
    }

    /// The stamp of the rules in force: those of the process that started last.
    pub(crate) fn rule(&self, bug: Option<Bug>) -> u64 {
        let rules = self.state.values().filter_map(|value| match value {
            Value::Rule { stamp, order } => Some((*stamp, *order)),
            _ => None,
        });
        if bug == Some(Bug::AgeByRegistrationOrder) {
            return rules.max_by_key(|(_, order)| *order).map_or(0, |(stamp, _)| stamp);
        }
        rules.map(|(stamp, _)| stamp).max().unwrap_or(0)
    }

    /// Whether the rules of a process are known.
    pub(crate) fn knows(&self, process: ProcessId) -> bool {
        self.state.contains_key(&Key::Rule(process))
    }

    /// Returns a grant that nobody received.
    pub(crate) fn give_back(&mut self, lease: LeaseId) {
        if let Some(Value::Lease { job, .. }) = self.state.get(&Key::Lease(lease)).copied() {
            self.set(Key::Lease(lease), None);
            self.set(Key::Job(job), Some(Value::Waiting));
        }
    }

    /// Advances time and ends expired leases.
    pub(crate) fn advance(&mut self, now: u64) {
        self.time = self.time.max(now);
        let over: Vec<_> =
            self.leases().filter(|(.., until)| *until <= self.time).map(|(lease, ..)| lease).collect();
        for lease in over {
            self.give_back(lease);
            self.expired.push((lease, self.true_now));
        }
    }

    fn leases(&self) -> impl Iterator<Item = (LeaseId, u64, (ProcessId, u64), u64)> {
        self.state.iter().filter_map(|(key, value)| match (key, value) {
            (Key::Lease(lease), Value::Lease { job, nonce, until }) => Some((*lease, *job, *nonce, *until)),
            _ => None,
        })
    }
}
