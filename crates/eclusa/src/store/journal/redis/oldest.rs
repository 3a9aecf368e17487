//! The journal on Redis as cleaning sees it.

use eclusa_core::{Mentions, RestoreError};
use eclusa_fleet::Position;
use redis::RedisError;
use thiserror::Error;

use super::{ChunkError, RedisJournal, decode};
use crate::store::journal::{ChunkSummary, Journal};

/// Why old chunks cannot be read.
#[derive(Debug, Error)]
pub(in crate::store) enum ReadError {
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    #[error(transparent)]
    Records(#[from] RestoreError),
}

impl Journal for RedisJournal {
    type Position = Position;
    type Error = ReadError;

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn newest(&self) -> Option<Position> {
        self.stored.back().map(|stored| stored.position)
    }

    fn after(&self, position: Position) -> Option<Position> {
        self.stored.get(self.index_after(position)).map(|stored| stored.position)
    }

    fn read_after(
        &mut self,
        position: Position,
        bytes: u64,
    ) -> Result<Vec<ChunkSummary<Position>>, ReadError> {
        let mut before = 0;
        let stored = self.stored.range(self.index_after(position)..);
        let count = stored
            .take_while(|stored| {
                let is_within = before < bytes.max(1);
                before += stored.bytes;
                is_within
            })
            .count();
        if count == 0 {
            return Ok(Vec::new());
        }
        let read = |(position, bytes): (Position, Vec<u8>)| {
            let chunk = decode(position.number, &bytes)?;
            Ok(ChunkSummary {
                position,
                bytes: bytes.len() as u64,
                mentions: Mentions::read(&chunk.records)?,
            })
        };
        self.chunks_after(position, count as u64)?.into_iter().map(read).collect()
    }
}

impl RedisJournal {
    fn index_after(&self, position: Position) -> usize {
        self.stored.partition_point(|stored| stored.position <= position)
    }
}
