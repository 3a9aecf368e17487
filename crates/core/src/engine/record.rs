//! What the journal holds: each thing's whole state under its identity, so that the newest record of a thing is all
//! there is to know about it, whatever rules were in force when it was written.

use std::sync::Arc;

use crate::dead_letter::DeadLetter;
use crate::ended::ServedBy;
use crate::gate::{Bucket, BucketSpec, Gates, Pass};
use crate::ids::{JobId, LeaseId, Name};
use crate::job::{DropReason, Event, Failure, Level, Payload, Status};
use crate::lane::{KeyEntry, Place, Tempo, Totals};
use crate::time::{SteadyTime, Time};
use crate::tokens::Tokens;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The version of the records below. Readers refuse a newer one rather than guess.
pub(super) const VERSION: u8 = 1;

/// Lanes and upstreams are named by number; their numbers never change.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Record {
    Meta { epoch: u32, next_lease: u64, time: SteadyTime },
    Lane(Box<LaneRecord>),
    Upstream { number: u32, name: Name, gates: Gates },
    Tenant(TenantRecord),
    TenantGone { lane: u32, arrival: u64 },
    Job(Box<JobRecord>),
    JobState { id: JobId, state: Box<JobState> },
    JobGone(JobId),
    Lease(LeaseId, LeaseRecord),
    LeaseGone(LeaseId),
    Bucket { key: Arc<str>, spec: BucketSpec, bucket: Bucket },
    BucketGone(Arc<str>),
    Dead { lane: u32, number: u64, job: JobId, letter: Box<DeadLetter> },
    DeadGone { lane: u32, number: u64 },
    Key { lane: u32, key: Arc<str>, entry: KeyEntry },
    KeyGone { lane: u32, key: Arc<str> },
    Cache { lane: u32, key: Arc<str>, answer: Blob, stored_at: Time, number: u64 },
    CacheGone { lane: u32, key: Arc<str> },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LaneRecord {
    pub(super) number: u32,
    pub(super) name: Name,
    pub(super) paused: bool,
    pub(super) next_seq: u64,
    pub(super) turns: [TurnsRecord; 3],
    pub(super) gates: Gates,
    pub(super) totals: Totals,
    pub(super) tempo: Tempo,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct TurnsRecord {
    pub(super) turn: i64,
    /// By arrival.
    pub(super) current: Option<u64>,
    pub(super) in_a_row: u32,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TenantRecord {
    pub(super) lane: u32,
    pub(super) arrival: u64,
    pub(super) name: Arc<str>,
    pub(super) levels: [(Option<i64>, Option<Place>); 3],
    pub(super) processed: u64,
    pub(super) last_processed: Option<Time>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JobRecord {
    pub(super) id: JobId,
    pub(super) lane: u32,
    /// By arrival.
    pub(super) tenant: u64,
    pub(super) level: Level,
    pub(super) created_at: Time,
    pub(super) expires_at: Time,
    pub(super) chain: Vec<u32>,
    pub(super) holds: Vec<(u32, Arc<str>, Tokens)>,
    pub(super) key: Option<Arc<str>>,
    pub(super) cache_key: Option<Arc<str>>,
    pub(super) replay_of: Option<JobId>,
    pub(super) payload: Blob,
    pub(super) state: JobState,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JobState {
    pub(super) seq: u64,
    pub(super) phase: PhaseRecord,
    pub(super) tried: u32,
    pub(super) attempts: u32,
    pub(super) lost: u8,
    pub(super) upstream: Option<u32>,
    pub(super) failure: Option<Failure>,
    pub(super) result: Option<Blob>,
    pub(super) timeline: Vec<Event<u32>>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum PhaseRecord {
    Pending { due: Time },
    Queued,
    Coalesced,
    Processing(LeaseId, LeaseRecord),
    Finished { at: Time, number: u64, status: Status, dropped: Option<DropReason>, served: Option<ServedBy> },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeaseRecord {
    pub(super) used_by: UseRecord,
    /// The lane whose slot it holds.
    pub(super) lane: Option<u32>,
    pub(super) upstream: Option<u32>,
    pub(super) pass: Pass,
    pub(super) holds: Vec<(Arc<str>, Tokens)>,
    pub(super) expires: Time,
}

/// Which job it is for is said by the record it stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum UseRecord {
    Job,
    Awaiting,
    Call,
    LaterCall,
}

/// Bytes written as one piece, not one by one.
#[derive(Debug, Clone)]
pub(super) struct Blob(pub(super) Payload);

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl de::Visitor<'_> for Bytes {
            type Value = Blob;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Blob, E> {
                Ok(Blob(bytes.into()))
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}
