//! From the chunks of a journal to an engine.

use eclusa_core::{Engine, RestoreError, Restorer};
use eclusa_fleet::Position;
use thiserror::Error;

use crate::store::journal::redis::{ChunkError, Mark, decode};

/// Why a journal on Redis cannot be read.
#[derive(Debug, Error)]
pub(super) enum LoadError {
    #[error("chunk {number} {source}")]
    Chunk { number: u64, source: ChunkError },
    #[error("chunk {found} follows chunk {after}: something between them is gone")]
    Hole { after: u64, found: u64 },
    #[error(transparent)]
    Records(#[from] RestoreError),
}

/// Applies chunks in order. A snapshot replaces what came before it when its end is there; one without an end counts for
/// nothing.
#[derive(Default)]
pub(super) struct Loader {
    restorer: Restorer,
    snapshot: Option<Restorer>,
    last: Option<u64>,
}

impl Loader {
    pub(super) fn apply(&mut self, position: Position, bytes: &[u8]) -> Result<(), LoadError> {
        let number = position.number;
        if let Some(after) = self.last.replace(number)
            && number != after + 1
        {
            return Err(LoadError::Hole { after, found: number });
        }
        let chunk = decode(number, bytes).map_err(|source| LoadError::Chunk { number, source })?;
        match chunk.mark {
            Mark::None => {
                self.snapshot = None;
                self.restorer.apply(&chunk.records)?;
            }
            Mark::Begin => {
                let mut snapshot = Restorer::default();
                snapshot.apply(&chunk.records)?;
                self.snapshot = Some(snapshot);
            }
            // Without a beginning that was cleaned away, and with it everything older: the snapshot was whole then.
            Mark::Part => self.snapshot.as_mut().unwrap_or(&mut self.restorer).apply(&chunk.records)?,
            Mark::End => {
                if let Some(snapshot) = self.snapshot.take() {
                    self.restorer = snapshot;
                }
            }
        }
        Ok(())
    }

    /// The engine that wrote the chunks; leases that it gives are of this epoch.
    pub(super) fn finish(self, epoch: u64) -> Result<Engine, RestoreError> {
        self.restorer.finish(epoch)
    }
}
