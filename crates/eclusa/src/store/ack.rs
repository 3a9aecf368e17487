//! What "accepted" means.

/// What has happened to a change when the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// It was fsynced: it survives a power cut.
    Fsync,
    /// It was handed to the operating system, or to Redis: it survives the death of this process, by SIGKILL too. A power cut
    /// loses what came after the last sync, which is about a second.
    Write,
    /// What was taken in has reached a replica of the Redis server too. Only on Redis.
    Replicate,
}
