//! The thread that receives and sends messages: questions to this process if it is the owner, answers to its own
//! questions.

use std::sync::Arc;
use std::time::Duration;

use eclusa_core::StoreError;
use eclusa_core::layout::Answers;
use eclusa_fleet::TermId;
use futures_util::StreamExt;
use redis::aio::{MultiplexedConnection, PubSubSink, PubSubStream};
use redis::{AsyncConnectionConfig, Client, Msg, RedisError};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::shared::{Route, Shared};
use crate::store::stage::Stage;

/// How long to wait before a broken connection is made again.
const RECONNECT: Duration = Duration::from_millis(100);

/// When a question that nobody received is sent again: another process may own by then.
const UNHEARD: Duration = Duration::from_millis(20);

/// A command of the owning thread.
pub(super) enum Listen {
    /// Subscribe to the questions of this term too, and confirm it.
    To(TermId, std::sync::mpsc::Sender<()>),
    /// Reconnect: the questions of this term do not arrive.
    Anew(TermId),
    /// This process is the owner now: questions that came early can be answered.
    Owns,
}

/// Receives messages until the owning thread is gone.
pub(super) async fn hear(shared: Arc<Shared>, client: Client, mut wishes: UnboundedReceiver<Listen>) {
    let mut subscription = RedisSubscription { shared, term: None, early: Vec::new() };
    loop {
        let connected = timeout(subscription.shared.timeout, subscription.connect(&client)).await;
        let Ok(Ok((sink, stream))) = connected else {
            if !subscription.wait_unconnected(&mut wishes).await {
                return;
            }
            continue;
        };
        subscription.shared.asking.listen(true);
        let again = subscription.listen(sink, stream, &mut wishes).await;
        subscription.shared.asking.listen(false);
        if !again {
            return;
        }
    }
}

struct RedisSubscription {
    shared: Arc<Shared>,
    /// The term whose questions are for this process.
    term: Option<TermId>,
    /// Questions that came before the journal was read. Bounded by the windows of the askers.
    early: Vec<Vec<u8>>,
}

impl RedisSubscription {
    async fn connect(&self, client: &Client) -> Result<(PubSubSink, PubSubStream), RedisError> {
        let (mut sink, stream) = client.get_async_pubsub().await?.split();
        let keys = &self.shared.keys;
        let mut channels = vec![keys.answers(self.shared.membership.process), keys.fleet()];
        channels.extend(self.term.map(|term| keys.questions(term)));
        sink.subscribe(channels).await?;
        self.shared.heard();
        // Messages were lost meanwhile: waiting callers ask again.
        self.shared.look_soon();
        Ok((sink, stream))
    }

    /// Waits without a connection; commands are noted, and the end is noticed. Returns whether to continue.
    async fn wait_unconnected(&mut self, wishes: &mut UnboundedReceiver<Listen>) -> bool {
        tokio::select! {
            () = sleep(RECONNECT) => true,
            wish = wishes.recv() => match wish {
                // Not confirmed: the owning thread tries again.
                Some(Listen::To(term, _) | Listen::Anew(term)) => {
                    self.replace_term(term);
                    true
                }
                Some(Listen::Owns) => true,
                None => false,
            }
        }
    }

    /// Receives messages until the connection breaks; returns whether to reconnect.
    async fn listen(
        &mut self,
        mut sink: PubSubSink,
        mut stream: PubSubStream,
        wishes: &mut UnboundedReceiver<Listen>,
    ) -> bool {
        loop {
            tokio::select! {
                message = stream.next() => match message {
                    Some(message) => self.dispatch(&message),
                    None => return true,
                },
                wish = wishes.recv() => match wish {
                    None => return false,
                    Some(Listen::Anew(term)) => {
                        self.replace_term(term);
                        return true;
                    }
                    Some(Listen::Owns) => self.answer_early(),
                    Some(Listen::To(term, done)) => {
                        let old = self.replace_term(term).map(|old| self.shared.keys.questions(old));
                        if sink.subscribe(self.shared.keys.questions(term)).await.is_err() {
                            return true;
                        }
                        if let Some(old) = old {
                            let _ = sink.unsubscribe(old).await;
                        }
                        let _ = done.send(());
                    }
                },
            }
        }
    }

    /// Sets the term whose questions are for this process; returns the previous one if it differs.
    fn replace_term(&mut self, term: TermId) -> Option<TermId> {
        let old = self.term.replace(term).filter(|old| *old != term);
        if old.is_some() {
            self.early.clear();
        }
        old
    }

    fn dispatch(&mut self, message: &Msg) {
        self.shared.heard();
        let (channel, bytes) = (message.get_channel_name(), message.get_payload_bytes());
        let keys = &self.shared.keys;
        if channel == keys.answers(self.shared.membership.process) {
            match Answers::decode(bytes) {
                Ok(answers) => self.shared.asking.answered(&answers),
                Err(error) => {
                    tracing::error!(%error, "The owner's answers cannot be read");
                    self.shared.asking.cannot_read(&error);
                }
            }
        } else if self.term.is_some_and(|term| channel == keys.questions(term)) {
            match self.shared.route() {
                Route::Own(stage, owner) if Some(owner.term) == self.term => {
                    self.answer_early();
                    self.answer(&stage, bytes);
                }
                _ => self.early.push(bytes.to_vec()),
            }
        } else {
            self.shared.look_soon();
            self.shared.fleet_changed.notify_one();
        }
    }

    fn answer_early(&mut self) {
        let Route::Own(stage, _) = self.shared.route() else { return };
        for message in std::mem::take(&mut self.early) {
            self.answer(&stage, &message);
        }
    }

    fn answer(&self, stage: &Arc<Stage>, message: &[u8]) {
        // A stage that has stopped answers nobody: the askers ask the next owner.
        let Ok(held) = self.shared.answering.hear(stage, message) else { return };
        for held in held {
            let (shared, stage) = (self.shared.clone(), stage.clone());
            tokio::spawn(async move {
                let (reply, _) = stage.hold(held.question).await?;
                shared.answering.answer(&stage, (held.process, held.sequence), reply)?;
                Ok::<_, StoreError>(())
            });
        }
    }
}

/// Sends questions until the process stops.
pub(super) async fn send(shared: Arc<Shared>, client: Client) {
    let mut connection: Option<MultiplexedConnection> = None;
    loop {
        let message = match shared.asking.next_message(&shared.membership, Instant::now()) {
            Ok(message) => message,
            Err(again) => {
                let later = async {
                    match again {
                        Some(at) => sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = shared.asking.sendable.notified() => {}
                    () = later => {}
                }
                continue;
            }
        };
        let channel = shared.keys.questions(message.term);
        let published = async {
            let server = match &mut connection {
                Some(server) => server,
                none => none.insert(connect(&client).await?),
            };
            redis::cmd("PUBLISH").arg(channel).arg(&message.bytes).query_async::<u64>(server).await
        };
        if let Ok(Ok(listeners)) = timeout(shared.timeout, published).await {
            shared.heard();
            if listeners == 0 {
                shared.asking.not_heard(&message);
                shared.look_soon();
                sleep(UNHEARD).await;
            }
        } else {
            connection = None;
            shared.asking.not_confirmed(&message);
            sleep(RECONNECT).await;
        }
    }
}

async fn connect(client: &Client) -> Result<MultiplexedConnection, RedisError> {
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&config).await
}
