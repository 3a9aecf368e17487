//! What a change of ownership means for the engine of this process and for the processes that ask it.

use std::sync::Arc;

use eclusa_core::layout::Question;
use eclusa_core::{Clock, Engine, StoreError, Time};
use eclusa_fleet::{Event, Outgoing, Position, TermId, TermView};

use super::loader::Loader;
use super::outage::GRACE;
use super::owner::OwnerThread;
use super::shared::{OwnerView, Route, Shared, unavailable};
use super::subscriber::Listen;
use super::work::Work;
use crate::store::group::resolve;
use crate::store::stage::Stage;

impl OwnerThread {
    pub(super) fn react(&mut self) {
        for event in self.machine.events() {
            match event {
                Event::ReadsAhead | Event::ReadInVain => self.loading = None,
                Event::Ready => {
                    tracing::info!("This process is ready to take over when the owner has stopped");
                }
                Event::Loading { epoch, after } => {
                    self.give_up(&unavailable("the journal is read again"));
                    self.work = Work::new(epoch, self.work.handed);
                    if after == Position::default() {
                        self.loading = None;
                    }
                }
                Event::Owns { term, epoch } => self.own(term, epoch),
                Event::Durable { batches } => self.work.durable(batches),
                Event::Unheard(answers) => self.unheard(&answers),
                Event::Deaf => self.listen_again(),
                Event::InDoubt => self.shared.set_route(Route::Nobody),
                Event::Lost => self.lose(),
                Event::Superseded { missing } => self.superseded(missing),
                Event::Follows(view) => self.follow(&view),
                Event::Released => tracing::info!("Another process may take over now"),
            }
        }
    }

    /// Reconnects, also if the term differs from the last subscription: the server may have run an earlier attempt to
    /// take it.
    fn listen_again(&self) {
        if let Some((term, _)) = self.machine.holds() {
            let _ = self.wishes.send(Listen::Anew(term));
        }
    }

    pub(super) fn own(&mut self, term: TermId, epoch: u64) {
        // An engine that was kept continues after the server lost data, including the public keys.
        let read = self.loading.take().and_then(Loader::into_engine);
        let kept = read.is_none();
        if let Some(mut engine) = read {
            if let (None, Some(most)) = (&self.shared.clock, self.shared.engine_time.at_most()) {
                engine.start_at(self.shared.server_clock.now(), most);
            }
            self.work.stage = Some(Arc::new(self.stage(engine)));
        }
        self.work.epoch = epoch;
        self.unreadable = 0;
        self.successor = None;
        let Some(stage) = &self.work.stage else { return };
        let rules = self.shared.membership.rules();
        let process = self.shared.membership.process;
        let unplanned = std::mem::take(&mut self.unplanned);
        // If the stage has stopped, the next question reports it.
        let _ = stage.run(|engine, now| {
            engine.set_epoch(epoch);
            if kept {
                engine.forget_public_views();
            }
            if unplanned {
                engine.spare_leases(now + GRACE, now);
            }
            engine.register(rules.registration(process), now);
        });
        let (stage, owner) = (stage.clone(), OwnerView { process, epoch, term });
        self.gather();
        self.shared.set_route(Route::Own(stage, owner));
        let _ = self.wishes.send(Listen::Owns);
        tracing::info!(epoch, "This process is the owner now");
    }

    fn stage(&self, engine: Engine) -> Stage {
        let shared = self.shared.clone();
        let clock: Arc<dyn Clock> = match &self.shared.clock {
            Some(clock) => clock.clone(),
            None => Arc::new(FleetClock(shared)),
        };
        let owner = eclusa_core::ProcessId(self.shared.membership.process.0);
        Stage::new(engine, clock, Some(self.shared.doorbell.clone()), Some(owner))
    }

    pub(super) fn unheard(&self, answers: &[Outgoing]) {
        if let Some(stage) = &self.work.stage {
            let _ = self.shared.answering.unheard(stage, answers);
        }
    }

    pub(super) fn follow(&self, view: &TermView) {
        let owner = OwnerView { process: view.owner, epoch: view.epoch, term: view.term };
        let known = matches!(self.shared.route(), Route::Ask(known) if known == owner);
        if !known && !view.released {
            self.shared.set_route(Route::Ask(owner));
        }
    }

    pub(super) fn lose(&mut self) {
        if self.leaving {
            tracing::info!("Another process takes over");
        } else {
            tracing::warn!("Another process took over");
        }
        self.shared.set_route(Route::Nobody);
        self.lost = self.work.stage.clone();
        self.give_up(&unavailable("another process took over"));
        self.loading = None;
        self.unreadable = 0;
    }

    /// Fails everything that waits to become durable, here and at other processes.
    pub(super) fn give_up(&mut self, error: &StoreError) {
        self.work.answer_callers();
        if let Some(stage) = self.work.stage.take() {
            stage.stop(error.clone());
        }
        self.shared.answering.forget();
        for (_, durable, _) in self.work.groups.drain(..) {
            resolve(&durable, Err(error.clone()));
        }
    }

    pub(super) fn superseded(&mut self, missing: bool) {
        let Some(stage) = self.lost.take() else { return };
        if !missing {
            return;
        }
        self.shared.lost_data();
        tracing::error!(
            "Redis lost what this process had acknowledged; its waiting jobs are enqueued again by their ids"
        );
        let now = self.shared.server_clock.now();
        let jobs = stage.look(|engine| engine.waiting_jobs(now));
        for some in jobs.chunks(100) {
            self.shared.asking.post(&Question::Enqueue(some.to_vec()));
        }
    }
}

/// The server's clock, for the engine.
struct FleetClock(Arc<Shared>);

impl Clock for FleetClock {
    fn now(&self) -> Time {
        self.0.server_clock.now()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use eclusa_core::gate::GateSpecs;
    use eclusa_core::layout::{Answers, Questions, ReceivedAnswers, Reply, SentRules, encode_spec};
    use eclusa_core::{Admission, Admit, Name, Registration, Span, Spec, UpstreamSpec};
    use eclusa_fleet::{Ack, Ownership, ProcessId, Settings};

    use super::super::membership::{MemberRules, Membership};
    use super::super::shared::SharedParts;
    use super::*;
    use crate::store::journal::redis::{Keys, Promise, RedisJournal, Server};

    const ASKER: ProcessId = ProcessId(9);

    /// An owner without a server; it needs none until it sends something.
    fn owner() -> OwnerThread {
        let process = ProcessId(1);
        let keys = Keys::new("", "test", 0);
        let term = Duration::from_secs(2);
        let shared = Arc::new(Shared::new(SharedParts {
            keys: keys.clone(),
            membership: Membership::new(process, MemberRules::new(1, "all", &Spec::default())),
            timeout: term,
            max_wait: term,
            forget_within: crate::config::FORGET_WITHIN,
            clock: None,
        }));
        let client = redis::Client::open("redis://127.0.0.1:1").unwrap();
        let server = Server::new(client, term, Promise { ack: crate::store::Ack::Write, keeps_jobs: false });
        let settings = Settings {
            process,
            term: term.into(),
            patience: term.into(),
            format: crate::store::journal::redis::FORMAT,
            ack: Ack::Write,
            seed: 1,
        };
        let journal = RedisJournal::new(server, keys, process, term.into());
        OwnerThread::new(Ownership::new(settings), journal, shared, tokio::sync::mpsc::unbounded_channel().0)
    }

    /// Begins a tenure in whose journal the process `known` is registered.
    fn begin(owner: &mut OwnerThread, known: u64) -> Arc<Stage> {
        let mut engine = Engine::default();
        let registration = Registration {
            process: eclusa_core::ProcessId(known),
            stamp: 1,
            about: "all".into(),
            spec: Arc::default(),
        };
        engine.register(registration, Time::default());
        let stage = Arc::new(owner.stage(engine));
        owner.work.stage = Some(stage.clone());
        stage
    }

    /// Asks, always with the same sequence, which processes are registered.
    fn asks(owner: &OwnerThread, stage: &Stage) -> Vec<u64> {
        let question = encoded(&Question::Fleet);
        let Reply::Fleet(there) = reply_to(owner, stage, &question) else { panic!("another answer") };
        there.iter().map(|one| one.process.0).filter(|process| *process != ASKER.0).collect()
    }

    fn reply_to(owner: &OwnerThread, stage: &Stage, question: &[u8]) -> Reply {
        let spec = encode_spec(&Spec::default());
        let (replies, _) = exchange(owner, stage, &message(Some(&spec), &[question]).encode());
        replies.into_iter().next().unwrap()
    }

    /// A message with these rules and questions, on a new connection.
    fn message<'a>(spec: Option<&'a [u8]>, questions: &[&'a [u8]]) -> Questions<'a> {
        static CONNECTIONS: AtomicU64 = AtomicU64::new(1);
        let connection = CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        Questions {
            process: ASKER.0,
            stamp: 1,
            done_below: 5,
            wants: 0,
            received: ReceivedAnswers { connection, bytes: 0 },
            in_fallback: false,
            registration: spec.map(|spec| SentRules { about: "all", spec }),
            items: (5..).zip(questions.iter().copied()).collect(),
        }
    }

    /// Sends a message; returns the replies, and whether the rules of the asking process are requested.
    fn exchange(owner: &OwnerThread, stage: &Stage, message: &[u8]) -> (Vec<Reply>, bool) {
        owner.shared.answering.hear(stage, message).unwrap();
        let group = stage.take_group().unwrap().expect("there is no answer");
        let outgoing = owner.shared.answering.address(group.answers);
        owner.shared.answering.published(&outgoing);
        let [outgoing] = &*outgoing else { panic!("{} messages", outgoing.len()) };
        assert_eq!(outgoing.to, ASKER);
        let answers = Answers::decode(&outgoing.message).unwrap();
        let replies = answers.items.iter().map(|(_, reply)| Reply::decode(reply).unwrap());
        (replies.collect(), answers.register)
    }

    #[test]
    fn an_answer_on_its_way_is_not_sent_again_and_one_lost_with_its_connection_is() {
        let mut owner = owner();
        let stage = begin(&mut owner, 11);
        let (spec, question) = (encode_spec(&Spec::default()), encoded(&Question::Fleet));
        let message = |connection| {
            let received = ReceivedAnswers { connection, bytes: 0 };
            Questions { received, ..message(Some(&spec), &[&question]) }
        };
        let answers = |connection| exchange(&owner, &stage, &message(connection).encode()).0.len();
        assert_eq!((answers(1), answers(1), answers(2)), (1, 0, 1));
    }

    fn encoded(question: &Question) -> Vec<u8> {
        let mut bytes = Vec::new();
        question.encode(&mut bytes);
        bytes
    }

    /// The only cause for which all these questions were refused.
    fn refusal(replies: &[Reply]) -> &str {
        let [Reply::Unread(cause), rest @ ..] = replies else { panic!("{replies:?}") };
        assert!(rest.iter().all(|other| *other == replies[0]), "{replies:?}");
        cause
    }

    #[test]
    fn answers_of_a_lost_tenure_are_decided_again_in_the_next() {
        let mut owner = owner();
        let first = begin(&mut owner, 11);
        assert_eq!(asks(&owner, &first), [11]);
        assert_eq!(asks(&owner, &first), [11], "the same answer once more");
        owner.lose();
        let second = begin(&mut owner, 12);
        assert_eq!(asks(&owner, &second), [12]);
    }

    #[test]
    fn a_process_that_rejoins_is_granted_its_first_question() {
        let mut owner = owner();
        let stage = begin(&mut owner, 11);
        let up = Name::new("up").unwrap();
        let spec = Spec::new(Vec::new(), vec![UpstreamSpec::new(up.clone(), GateSpecs::default())]).unwrap();
        let rules = MemberRules::new(2, "all", &spec).registration(ProcessId(11));
        stage.run(|engine, now| engine.register(rules, now)).unwrap();
        stage.withheld.wait_for(BTreeSet::from([ASKER]));
        let (holds, lease) = (Vec::new(), Span::from_secs(10));
        let ask = Admit {
            lane: None,
            tenant: None,
            chain: vec![up],
            holds,
            correlation: None,
            lease,
            nonce: 7,
            after: None,
            probe: true,
        };
        let question = encoded(&Question::Admit(ask));
        let Reply::Admitted(answer) = reply_to(&owner, &stage, &question) else { panic!("another answer") };
        assert!(matches!(answer.admission, Admission::Granted { .. }), "{answer:?}");
    }

    #[test]
    fn a_question_of_another_version_is_refused_with_a_reason() {
        let mut owner = owner();
        let stage = begin(&mut owner, 11);
        let mut question = encoded(&Question::Fleet);
        question[0] = 2;
        let Reply::Unread(cause) = reply_to(&owner, &stage, &question) else { panic!("another answer") };
        assert_eq!(cause, "written in version 2 of the layout; versions up to 1 are supported");
        question[0] = 0;
        let Reply::Unread(cause) = reply_to(&owner, &stage, &question) else { panic!("another answer") };
        assert!(cause.contains("version 0 of the layout is not supported"), "{cause}");
    }

    #[test]
    fn every_question_of_a_newer_message_is_refused_with_a_reason() {
        let mut owner = owner();
        let stage = begin(&mut owner, 11);
        let question = encoded(&Question::Fleet);
        let mut newer = message(None, &[&question, &question]).encode();
        newer[0] = 2;
        // Nothing but the header of a newer message can be relied on.
        newer.truncate(newer.len() - question.len());
        newer.extend([0xff; 40]);
        let (replies, register) = exchange(&owner, &stage, &newer);
        assert_eq!((replies.len(), register), (2, false));
        assert_eq!(refusal(&replies), "written in version 2 of the layout; versions up to 1 are supported");
    }

    #[test]
    fn a_process_whose_rules_cannot_be_read_is_refused_and_not_asked_for_them_again() {
        let mut owner = owner();
        let stage = begin(&mut owner, 11);
        let (spec, question) = (encode_spec(&Spec::default()), encoded(&Question::Fleet));
        let mut newer = spec.clone();
        newer[0] += 1;
        for rules in [Some(&*newer), None] {
            let (replies, register) =
                exchange(&owner, &stage, &message(rules, &[&question, &question]).encode());
            assert_eq!((replies.len(), register), (2, false), "{rules:?}");
            assert!(refusal(&replies).starts_with("the rules of this process: written in version 4"));
        }
        let (replies, _) = exchange(&owner, &stage, &message(Some(&spec), &[&question]).encode());
        assert!(matches!(replies[..], [Reply::Fleet(_)]), "{replies:?}");
    }
}
