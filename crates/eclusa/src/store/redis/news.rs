//! What other processes do, told by the server as it happens.

use std::time::Duration;

use eclusa_core::{JobId, Name, StoreError};
use futures_util::StreamExt;
use serde_bytes::ByteBuf;
use tokio::time::timeout;

use super::RedisStore;
use super::connection::unavailable;
use super::wire::{job_id, name, read_all};

/// How long making the connection may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Something happened that others may wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A job ended.
    Ended(JobId),
    /// A job came into a lane.
    Arrived(Name),
}

impl RedisStore {
    /// Tells all news until the connection breaks. None are kept: whoever connects late has missed them.
    pub async fn listen(&self, tell: impl Fn(News)) -> Result<(), StoreError> {
        let late = |_| StoreError::Unavailable { cause: "it did not answer in time".into() };
        let subscribe = async {
            let mut news = self.server.connection.client().get_async_pubsub().await?;
            news.subscribe(self.server.keys.news()).await?;
            Ok(news)
        };
        let news = timeout(PATIENCE, subscribe).await.map_err(late)?.map_err(|error| unavailable(&error))?;
        let mut messages = news.into_on_message();
        while let Some(message) = messages.next().await {
            read(message.get_payload_bytes())?.into_iter().for_each(&tell);
        }
        Ok(())
    }
}

fn read(message: &[u8]) -> Result<Vec<News>, StoreError> {
    let (what, about): (String, Vec<ByteBuf>) = read_all(2, message)?;
    let one = |about: ByteBuf| match what.as_str() {
        "ended" => job_id(&about).map(News::Ended),
        _ => name(&String::from_utf8_lossy(&about)).map(News::Arrived),
    };
    about.into_iter().map(one).collect()
}
