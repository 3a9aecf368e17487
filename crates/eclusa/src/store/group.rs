//! Changes that become durable together, and what waits for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use eclusa_core::gate::GateChange;
use eclusa_core::layout::Reply;
use eclusa_core::{Mentions, StoreError};
use eclusa_fleet::ProcessId;
use tokio::sync::SetOnce;

use super::doorbell::Doorbell;

/// Answers to other processes, encoded, by sequence.
pub(super) type AnswersByProcess = BTreeMap<ProcessId, Vec<(u64, Arc<[u8]>)>>;

/// A group as the writer takes it.
#[derive(Default)]
pub(super) struct Group {
    /// The changes as records; empty if there are none.
    pub(super) records: Vec<u8>,
    /// What the records mention.
    pub(super) mentions: Mentions,
    /// Notifies the callers in this process.
    pub(super) durable: Durable,
    /// Answers to other processes.
    pub(super) answers: AnswersByProcess,
    /// Gate changes, to be logged when the group is durable.
    pub(super) gates: Vec<GateChange>,
}

/// Notifies all that wait for a group when it is durable, or that it never will be.
pub(super) type Durable = Arc<SetOnce<Result<(), StoreError>>>;

/// A place in a group that is not durable yet. The caller that began the group ensures that it is written: by waiting
/// for it (`Stage::durable`), or, if this is dropped earlier, by waking the writer.
pub(super) struct Ticket {
    pub(super) group: Durable,
    /// Set for the caller that began the group and has not written it.
    pub(super) wake: Option<Arc<Doorbell>>,
    /// Whether other callers are likely to join the group if this one yields.
    pub(super) crowded: bool,
}

impl Ticket {
    pub(super) fn wake_writer(&mut self) {
        if let Some(doorbell) = self.wake.take() {
            doorbell.ring();
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.wake_writer();
    }
}

/// Notifies all that wait for a group. Each group has one writer, so this happens once.
pub(super) fn resolve(group: &SetOnce<Result<(), StoreError>>, how: Result<(), StoreError>) {
    let _ = group.set(how);
}

/// Encodes a reply.
pub(super) fn encode(reply: &Reply) -> Arc<[u8]> {
    let mut bytes = Vec::new();
    reply.encode(&mut bytes);
    bytes.into()
}
