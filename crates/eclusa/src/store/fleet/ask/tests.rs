use std::collections::BTreeSet;
use std::sync::Mutex;
use std::task::Poll;

use eclusa_core::gate::{CallResult, GateSpecs};
use eclusa_core::layout::{Answers, LayoutError, Questions};
use eclusa_core::{Engine, UpstreamSpec};
use eclusa_fleet::{ProcessId, TermId};
use futures_util::poll;
use tokio::time::{Instant, advance};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::super::membership::Membership;
use super::super::shared::{OwnerView, SharedParts};
use super::*;
use crate::store::journal::redis::Keys;
use crate::store::stage::Stage;

const TIMEOUT: Duration = Duration::from_secs(2);

fn up() -> Name {
    Name::new("up").unwrap()
}

/// A process that was cut off and recorded a failure meanwhile.
fn cut_off() -> FleetAccess {
    let spec = Spec::new(Vec::new(), vec![UpstreamSpec::new(up(), GateSpecs::default())]).unwrap();
    let shared = Arc::new(Shared::new(SharedParts {
        keys: Keys::new("", "main", 0),
        membership: Membership::new(ProcessId(1), MemberRules::new(1, "all", &spec)),
        timeout: TIMEOUT,
        forget_within: crate::config::FORGET_WITHIN,
        clock: None,
    }));
    let fleet = FleetAccess::new(shared, &RedisSettings::default(), &spec);
    let fallback = fleet.fallback.as_ref().unwrap();
    fallback.begin();
    fallback.ask(&Question::Record { upstream: up(), result: CallResult::Failed });
    assert_eq!(reports(&fleet), 1);
    fleet
}

fn reports(fleet: &FleetAccess) -> usize {
    fleet.fallback.as_ref().unwrap().fallback_log().map_or(0, |fallback_log| fallback_log.reports.len())
}

#[tokio::test(start_paused = true)]
async fn what_was_never_reported_is_kept_until_the_fleet_can_be_asked_again() {
    let fleet = cut_off();
    let fallback = fleet.fallback.as_ref().unwrap();
    advance(2 * TIMEOUT).await;
    assert!(!fleet.rejoin(fallback).await, "nothing replies");
    assert_eq!(reports(&fleet), 1);
    fleet.shared.heard();
    assert!(!fleet.rejoin(fallback).await, "no owner is known");
    assert_eq!(reports(&fleet), 1);
}

#[tokio::test(start_paused = true)]
async fn what_the_owner_may_have_counted_is_not_reported_again() {
    for gives_up in [true, false] {
        let fleet = cut_off();
        let (process, term) = (ProcessId(2), TermId(7));
        fleet.shared.set_route(Route::Ask(OwnerView { process, epoch: 1, term }));
        fleet.shared.asking.listen(true);
        {
            let mut coming = pin!(fleet.rejoin(fleet.fallback.as_ref().unwrap()));
            assert!(poll!(&mut coming).is_pending());
            fleet.shared.asking.next_message(&fleet.shared.membership, Instant::now()).unwrap();
            if !gives_up {
                assert!(!coming.await, "there was no answer");
            }
        }
        assert_eq!(reports(&fleet), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_the_owner_cannot_read_is_not_asked_again() {
    let fleet = cut_off();
    let (process, term) = (ProcessId(2), TermId(7));
    fleet.shared.set_route(Route::Ask(OwnerView { process, epoch: 1, term }));
    fleet.shared.asking.listen(true);
    let mut asked = pin!(fleet.ask_fleet(&Question::Lanes));
    assert!(poll!(&mut asked).is_pending());
    let message = fleet.shared.asking.next_message(&fleet.shared.membership, Instant::now()).unwrap();
    let (sequence, _) = Questions::decode(&message.bytes).unwrap().items[0];
    let mut reply = Vec::new();
    Reply::Unread("version 3".into()).encode(&mut reply);
    let items = vec![(sequence, &*reply)];
    fleet.shared.asking.answered(&Answers { window: 1_000_000, sent: 0, register: false, items });
    let error = asked.await.unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("the owner cannot read the question: version 3"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn questions_end_if_the_answers_of_their_owner_cannot_be_read() {
    let fleet = cut_off();
    let (process, term) = (ProcessId(2), TermId(7));
    fleet.shared.set_route(Route::Ask(OwnerView { process, epoch: 1, term }));
    fleet.shared.asking.listen(true);
    let mut asked = pin!(fleet.ask_fleet(&Question::Lanes));
    assert!(poll!(&mut asked).is_pending());
    fleet.shared.asking.next_message(&fleet.shared.membership, Instant::now()).unwrap();
    let mut unsent = pin!(fleet.ask_fleet(&Question::Upstreams));
    assert!(poll!(&mut unsent).is_pending());
    fleet.shared.asking.cannot_read(&LayoutError::NewerVersion { found: 2, known: 1 });
    let Poll::Ready(Err(error)) = poll!(asked) else { panic!("it still waits") };
    assert!(!error.is_transient(), "{error}");
    assert!(error.to_string().contains("version 2") && error.to_string().contains("up to 1"), "{error}");
    assert!(poll!(unsent).is_pending(), "another owner may answer it");
}

/// Records at each log line whether the owner waited for this process, and whether this process was in fallback.
#[derive(Clone)]
struct LogWatch {
    shared: Arc<Shared>,
    stage: Arc<Stage>,
    seen: Arc<Mutex<Vec<(bool, bool)>>>,
}

impl<S: Subscriber> Layer<S> for LogWatch {
    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        let waited_for = self.stage.withheld.waits_for_others_than(ProcessId(0));
        self.seen.lock().unwrap().push((waited_for, self.shared.membership.is_in_fallback()));
    }
}

#[tokio::test(start_paused = true)]
async fn limits_are_shared_again_only_when_the_owner_grants() {
    let fleet = cut_off();
    let process = fleet.shared.membership.process;
    fleet.shared.membership.set_in_fallback(true);
    let stage = Arc::new(Stage::new(Engine::default(), Arc::new(crate::SystemClock), None, None));
    stage.withheld.wait_for(BTreeSet::from([process]));
    fleet.shared.set_route(Route::Own(stage.clone(), OwnerView { process, epoch: 1, term: TermId(7) }));
    let watch = LogWatch { shared: fleet.shared.clone(), stage, seen: Arc::default() };
    let _watched = tracing_subscriber::registry().with(watch.clone()).set_default();
    assert!(fleet.rejoin(fleet.fallback.as_ref().unwrap()).await);
    assert_eq!(*watch.seen.lock().unwrap(), [(false, false)], "once, when limits were shared again");
}

#[tokio::test(start_paused = true)]
async fn local_decisions_do_not_start_during_a_report_to_the_owner() {
    let fleet = cut_off();
    let fallback = fleet.fallback.as_ref().unwrap();
    fallback.end();
    advance(2 * TIMEOUT).await;
    let in_fallback = || (fallback.decides(), fleet.shared.membership.is_in_fallback());
    let returning = fleet.returning.write().await;
    let mut asked = pin!(fleet.ask(Question::Record { upstream: up(), result: CallResult::Failed }));
    assert!(poll!(&mut asked).is_pending());
    assert_eq!(in_fallback(), (false, false));
    drop(returning);
    asked.await.unwrap();
    assert_eq!(in_fallback(), (true, true));
}
