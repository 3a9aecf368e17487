use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use eclusa_core::gate::{BreakerSpec, CallResult, GateSpecs, Reason, Share};
use eclusa_core::layout::{Answers, LayoutError, Questions};
use eclusa_core::{Admission, Admit, Engine, Name, SeenBuckets, Time, UpstreamSpec, Wait};
use eclusa_fleet::{ProcessId, TermId};
use futures_util::poll;
use tokio::time::{Instant, advance, sleep};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::super::membership::Membership;
use super::super::shared::{OwnerView, SharedParts};
use super::*;
use crate::store::fallback::SharedState;
use crate::store::journal::redis::Keys;
use crate::store::stage::Stage;

const TIMEOUT: Duration = Duration::from_secs(2);
const MAX_WAIT: Duration = Duration::from_secs(30);

const HOUR: Span = Span::from_secs(3_600);

fn up() -> Name {
    Name::new("up").unwrap()
}

/// A clock of a machine, which the test sets.
#[derive(Default)]
struct MachineClock(AtomicU64);

impl Clock for MachineClock {
    fn now(&self) -> Time {
        Time::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// A process with these rules, on a machine with this clock.
fn process(spec: &Spec, machine: Option<Arc<dyn Clock>>) -> FleetAccess {
    let shared = Arc::new(Shared::new(SharedParts {
        keys: Keys::new("", "main", 0),
        membership: Membership::new(ProcessId(1), MemberRules::new(1, "all", spec)),
        timeout: TIMEOUT,
        max_wait: MAX_WAIT,
        forget_within: crate::config::FORGET_WITHIN,
        clock: None,
    }));
    FleetAccess::new(shared, &RedisSettings { clock: machine, ..RedisSettings::default() }, spec)
}

fn one_upstream(gates: GateSpecs) -> Spec {
    Spec::new(Vec::new(), vec![UpstreamSpec::new(up(), gates)]).unwrap()
}

/// Lets another process own, which is asked.
fn ask_another(fleet: &FleetAccess) {
    let (process, term) = (ProcessId(2), TermId(7));
    fleet.shared.set_route(Route::Ask(OwnerView { process, epoch: 1, term }));
    fleet.shared.asking.listen(true);
}

/// A process that was cut off and recorded a failure meanwhile.
fn cut_off() -> FleetAccess {
    let fleet = process(&one_upstream(GateSpecs::default()), None);
    let fallback = fleet.fallback.as_ref().unwrap();
    fallback.begin(fleet.shared.engine_now());
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
        ask_another(&fleet);
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
    ask_another(&fleet);
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
    ask_another(&fleet);
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

fn admit() -> Question {
    Question::Admit(Admit {
        lane: None,
        tenant: None,
        chain: vec![up()],
        holds: Vec::new(),
        correlation: None,
        lease: Span::from_secs(10),
        nonce: 7,
        after: None,
        probe: true,
    })
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_wrong_opens_nothing_earlier_while_cut_off() {
    let mut gates = GateSpecs::default();
    gates.breaker = Some(BreakerSpec::new(1, Span::from_secs(30), 1).unwrap());
    let spec = one_upstream(gates);
    let now = Time::from_millis(1_700_000_000_000);
    let mut owner = Engine::new(&spec);
    owner.record(&up(), CallResult::Failed, now);
    for begins in [now + HOUR, now, now - HOUR] {
        let machine = Arc::new(MachineClock(begins.as_millis().into()));
        let fleet = process(&spec, Some(machine.clone()));
        fleet.shared.engine_time.hear(now, Instant::now());
        let state =
            SharedState { lanes: Vec::new(), upstreams: owner.upstreams(now), buckets: SeenBuckets::TooMany };
        let fallback = fleet.fallback.as_ref().unwrap();
        fallback.see(Share::WHOLE, state, &fallback.started());
        advance(2 * TIMEOUT).await;
        for (later, denied) in [(0, true), (25_999, true), (26_000, false)] {
            machine.0.store((begins + Span::from_millis(later)).as_millis(), Ordering::Relaxed);
            let Reply::Admitted(answer) = fleet.ask(admit()).await.unwrap() else { panic!() };
            let until = now + Span::from_secs(30);
            let open = matches!(&answer.admission, Admission::Denied { denial, .. }
                if denial.reason == Reason::CircuitOpen && denial.at == until);
            assert_eq!(open, denied, "after {later} ms: {answer:?}");
        }
    }
}

/// The answer to a question if Redis replies all the time and no process decides, and when it came.
async fn without_owner(fleet: &FleetAccess, question: Question) -> (StoreError, Duration) {
    let began = Instant::now();
    let redis_replies = async {
        loop {
            fleet.shared.heard();
            sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        reply = fleet.ask(question) => (reply.unwrap_err(), began.elapsed()),
        () = redis_replies => unreachable!(),
    }
}

#[tokio::test(start_paused = true)]
async fn moments_are_compared_with_the_owners_time() {
    let fleet = cut_off();
    let asked = Instant::now();
    advance(Duration::from_millis(40)).await;
    fleet.shared.engine_time.hear(Time::from_millis(5_000), asked);
    advance(Duration::from_secs(3)).await;
    assert_eq!(fleet.shared.engine_now(), Time::from_millis(8_000));
}

#[tokio::test(start_paused = true)]
async fn a_question_that_nobody_decides_ends_after_the_longest_wait() {
    let fleet = cut_off();
    let fallback = fleet.fallback.as_ref().unwrap();
    fallback.end();
    let held = Question::Wait(Wait::for_end(eclusa_core::JobId(1), Span::from_secs(7)));
    let record = Question::Record { upstream: up(), result: CallResult::Failed };
    for (question, longest) in
        [(Question::Lanes, MAX_WAIT), (held, MAX_WAIT + Duration::from_secs(7)), (record, MAX_WAIT)]
    {
        let (error, took) = without_owner(&fleet, question).await;
        assert!(error.is_transient() && error.to_string().contains("server.max_wait"), "{error}");
        assert!(took >= longest && took < longest + Duration::from_secs(1), "{took:?}");
    }
    assert!(!fallback.decides(), "Redis answers");
}

#[tokio::test(start_paused = true)]
async fn rules_that_the_owner_refuses_are_taken_back() {
    let fleet = cut_off();
    let fallback = fleet.fallback.as_ref().unwrap();
    fallback.end();
    ask_another(&fleet);
    let (membership, asking) = (&fleet.shared.membership, &fleet.shared.asking);
    let old = membership.rules();
    let other = Spec::new(Vec::new(), Vec::new()).unwrap();
    {
        let mut changed = pin!(fleet.configure("all", &other));
        assert!(poll!(&mut changed).is_pending());
        let message = asking.next_message(membership, Instant::now()).unwrap();
        let (sequence, _) = Questions::decode(&message.bytes).unwrap().items[0];
        let mut reply = Vec::new();
        Reply::Unread("the rules of this process: version 4".into()).encode(&mut reply);
        let items = vec![(sequence, &*reply)];
        asking.answered(&Answers { window: 1_000_000, sent: 0, register: false, items });
        assert!(!changed.await.unwrap_err().is_transient());
    }
    let rules = membership.rules();
    assert_eq!((&rules.spec, rules.stamp > old.stamp + 1), (&old.spec, true));
    let message = asking.next_message(membership, Instant::now()).unwrap();
    let sent = Questions::decode(&message.bytes).unwrap();
    assert_eq!(sent.registration.unwrap().spec, old.encoded, "the owner gets the old rules again");
    fallback.begin(fleet.shared.engine_now());
    let Some(Reply::Admitted(answer)) = fallback.ask(&admit()) else { panic!() };
    assert!(matches!(answer.admission, Admission::Granted { .. }), "{answer:?}");
}
