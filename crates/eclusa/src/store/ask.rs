//! Implements the store's verbs on top of one method that asks questions.

use eclusa_core::StoreError;
use eclusa_core::layout::Reply;

/// Implements [`Store`](eclusa_core::Store) for a type that has `async fn ask(&self, Question) -> Result<Reply,
/// StoreError>`.
macro_rules! store_by_asking {
    ($store:ty) => {
        const _: () = {
            use eclusa_core::gate::CallResult;
            use eclusa_core::layout::{Question, Reply};
            use eclusa_core::*;

            use crate::store::ask::mismatch;

            macro_rules! ask {
                ($self:ident, $question:expr, $reply:ident) => {
                    match $self.ask($question).await? {
                        Reply::$reply(answer) => Ok(answer),
                        other => Err(mismatch(&other)),
                    }
                };
            }

            impl Store for $store {
                async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<EnqueueAnswer, StoreError> {
                    ask!(self, Question::Enqueue(jobs), Enqueued)
                }

                async fn dispatch(&self, ask: Dispatch) -> Result<Dispatched, StoreError> {
                    ask!(self, Question::Dispatch(ask), Dispatched)
                }

                async fn advance(&self, ask: Advance) -> Result<Advanced, StoreError> {
                    ask!(self, Question::Advance(ask), Advanced)
                }

                async fn extend(&self, leases: Vec<LeaseId>, lease: Span) -> Result<Vec<bool>, StoreError> {
                    ask!(self, Question::Extend { leases, lease }, Extended)
                }

                async fn settle(&self, settlements: Vec<Settlement>) -> Result<SettleAnswer, StoreError> {
                    ask!(self, Question::Settle(settlements), Settled)
                }

                async fn complete(&self, reported: Completion) -> Result<CompleteAnswer, StoreError> {
                    ask!(self, Question::Complete(reported), Completed)
                }

                async fn poll(&self, ask: Poll) -> Result<Polls, StoreError> {
                    ask!(self, Question::Poll(ask), Polls)
                }

                async fn cancel(&self, job: JobId) -> Result<Cancelled, StoreError> {
                    ask!(self, Question::Cancel(job), Cancelled)
                }

                async fn cancel_all(&self, ask: CancelAll) -> Result<CancelledAll, StoreError> {
                    ask!(self, Question::CancelAll(ask), CancelledAll)
                }

                async fn fire(&self, ask: Fire) -> Result<Fired, StoreError> {
                    ask!(self, Question::Fire(ask), Fired)
                }

                async fn watch(&self, ask: Watch) -> Result<AlertChanges, StoreError> {
                    ask!(self, Question::Watch(ask), Watched)
                }

                async fn alerts(&self) -> Result<AlertsView, StoreError> {
                    ask!(self, Question::Alerts, Alerts)
                }

                async fn observe(&self, ask: Observe) -> Result<Observed, StoreError> {
                    ask!(self, Question::Observe(ask), Observed).map(|observed| *observed)
                }

                async fn history(&self, query: HistoryQuery) -> Result<HistoryView, StoreError> {
                    ask!(self, Question::History(query), History)
                }

                async fn schedules(&self) -> Result<Vec<(Name, Time)>, StoreError> {
                    ask!(self, Question::Schedules, Schedules)
                }

                async fn codes(&self, upstream: Name) -> Result<Option<Vec<CodeView>>, StoreError> {
                    ask!(self, Question::Codes(upstream), Codes)
                }

                async fn admit(&self, ask: Admit) -> Result<Admitted, StoreError> {
                    ask!(self, Question::Admit(ask), Admitted)
                }

                async fn record(
                    &self,
                    upstream: Name,
                    result: CallResult,
                ) -> Result<Option<UpstreamView>, StoreError> {
                    ask!(self, Question::Record { upstream, result }, Upstream)
                }

                async fn recover(&self, upstream: Name) -> Result<Option<UpstreamView>, StoreError> {
                    ask!(self, Question::Recover(upstream), Upstream)
                }

                async fn reset(&self, upstream: Name) -> Result<Option<UpstreamView>, StoreError> {
                    ask!(self, Question::Reset(upstream), Upstream)
                }

                async fn credit(&self, credits: Vec<Credit>) -> Result<Vec<Credited>, StoreError> {
                    ask!(self, Question::Credit(credits), Credited)
                }

                async fn correct(&self, corrections: Vec<Correction>) -> Result<Vec<Corrected>, StoreError> {
                    ask!(self, Question::Correct(corrections), Corrected)
                }

                async fn hash_key(&self, offer: HashKey) -> Result<HashKey, StoreError> {
                    ask!(self, Question::HashKey(offer), HashKey)
                }

                async fn replay(&self, ask: Replay) -> Result<Replayed, StoreError> {
                    ask!(self, Question::Replay(ask), Replayed)
                }

                async fn bulk(&self, ask: BulkAsk) -> Result<BulkAnswer, StoreError> {
                    ask!(self, Question::Bulk(ask), Bulk)
                }

                async fn discard_all(&self, query: LetterQuery) -> Result<DiscardedLetters, StoreError> {
                    ask!(self, Question::DiscardAll(query), Discarded)
                }

                async fn count_letters(&self, ask: CountLetters) -> Result<LetterCounts, StoreError> {
                    ask!(self, Question::CountLetters(ask), LetterCounts)
                }

                async fn discard(&self, lane: Name, letter: JobId) -> Result<bool, StoreError> {
                    ask!(self, Question::Discard { lane, letter }, Done)
                }

                async fn pause(&self, lane: Name, paused: bool) -> Result<bool, StoreError> {
                    ask!(self, Question::Pause { lane, paused }, Done)
                }

                async fn sweep(&self) -> Result<Swept, StoreError> {
                    ask!(self, Question::Sweep, Swept)
                }

                async fn wait(&self, ask: Wait) -> Result<Option<JobView>, StoreError> {
                    ask!(self, Question::Wait(ask), Job)
                }

                async fn why(&self, job: JobId) -> Result<Option<Why>, StoreError> {
                    ask!(self, Question::Why(job), Why)
                }

                async fn job(&self, job: JobId) -> Result<Option<JobView>, StoreError> {
                    ask!(self, Question::Job(job), Job)
                }

                async fn jobs(&self, query: JobQuery) -> Result<JobPage, StoreError> {
                    ask!(self, Question::Jobs(query), Jobs)
                }

                async fn lanes(&self) -> Result<Vec<LaneView>, StoreError> {
                    ask!(self, Question::Lanes, Lanes)
                }

                async fn buckets(&self, query: BucketQuery) -> Result<BucketPage, StoreError> {
                    ask!(self, Question::Buckets(query), Buckets)
                }

                async fn upstreams(&self) -> Result<Vec<UpstreamView>, StoreError> {
                    ask!(self, Question::Upstreams, Upstreams)
                }

                async fn tenants(&self, query: TenantQuery) -> Result<TenantPage, StoreError> {
                    ask!(self, Question::Tenants(query), Tenants)
                }

                async fn dead_letter(&self, letter: JobId) -> Result<Option<DeadLetterView>, StoreError> {
                    ask!(self, Question::DeadLetter(letter), DeadLetter)
                }

                async fn dead_letters(&self, query: LetterQuery) -> Result<LetterPage, StoreError> {
                    ask!(self, Question::DeadLetters(query), DeadLetters)
                }
            }
        };
    };
}
pub(super) use store_by_asking;

/// The error for a reply to another question, which only a faulty owner sends.
pub(super) fn mismatch(reply: &Reply) -> StoreError {
    let cause = format!("the answer does not fit the question: {reply:?}").into();
    StoreError::Stopped { cause }
}
