use eclusa_core::gate::CallResult;
use eclusa_core::{JobId, Name, NewJob, Spec};
use eclusa_fleet::ProcessId;
use tokio::time::advance;

use super::super::membership::MemberRules;
use super::*;

const FIRST: TermId = TermId(7);
const SECOND: TermId = TermId(8);

/// A process that asks the owner of [`FIRST`].
struct Asker {
    asking: Arc<Asking>,
    membership: Membership,
}

impl Asker {
    fn new() -> Self {
        let rules = MemberRules::new(1, "all", &Spec::new(Vec::new(), Vec::new()).unwrap());
        let asking = Arc::new(Asking::new());
        asking.follow(Some(FIRST));
        asking.listen(true);
        Self { asking, membership: Membership::new(ProcessId(1), rules) }
    }

    /// The sequences of the next message.
    fn sends(&self) -> Vec<u64> {
        let message = self.asking.next_message(&self.membership, Instant::now());
        message.map(|message| message.sequences).unwrap_or_default()
    }

    fn answer(&self, sequences: &[u64], window: u64) {
        let mut reply = Vec::new();
        Reply::Done(true).encode(&mut reply);
        let items = sequences.iter().map(|sequence| (*sequence, &*reply)).collect();
        self.asking.answered(&Answers { window, sent: 0, register: false, items });
    }
}

/// About a third of the first window.
fn long_question() -> Question {
    Question::Enqueue(vec![NewJob::new(JobId(1), Name::new("work").unwrap(), "acme", vec![b'x'; 20_000])])
}

fn cancel(job: u128) -> Question {
    Question::Cancel(JobId(job))
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_question_is_sent_again_before_newer_ones() {
    let asker = Asker::new();
    let _asked = [asker.asking.ask(&cancel(1)), asker.asking.ask(&cancel(2))];
    assert_eq!(asker.sends(), [1, 2]);
    asker.answer(&[1], 1 << 20);
    let again = asker.asking.next_message(&asker.membership, Instant::now()).err().flatten();
    assert_eq!(again, Some(Instant::now() + ASK_AGAIN));
    advance(ASK_AGAIN).await;
    let _newer = asker.asking.ask(&cancel(3));
    assert_eq!(asker.sends(), [2, 3]);
    assert_eq!(asker.sends(), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn questions_on_the_way_fit_the_window() {
    let asker = Asker::new();
    let _asked: Vec<_> = (0..6).map(|_| asker.asking.ask(&long_question())).collect();
    assert_eq!(asker.sends(), [1, 2, 3]);
    assert_eq!(asker.sends(), [0; 0], "the window is full");
    asker.answer(&[2], FIRST_WINDOW);
    assert_eq!(asker.sends(), [4]);
    asker.answer(&[1, 3, 4], 2 * 20_100);
    assert_eq!(asker.sends(), [5, 6], "the window is empty again, and smaller");
}

#[tokio::test(start_paused = true)]
async fn a_question_without_a_caller_is_asked_only_if_it_may_have_arrived() {
    let asker = Asker::new();
    let sent = asker.asking.ask(&cancel(1));
    assert_eq!(asker.sends(), [1]);
    let unsent = asker.asking.ask(&cancel(2));
    drop((sent, unsent));
    asker.asking.follow(Some(SECOND));
    assert_eq!(asker.sends(), [1], "what it granted must be found and released");
}

#[tokio::test(start_paused = true)]
async fn what_a_lost_connection_may_have_lost_is_sent_again() {
    let asker = Asker::new();
    let _asked = [asker.asking.ask(&cancel(1)), asker.asking.ask(&cancel(2))];
    assert_eq!(asker.sends(), [1, 2]);
    asker.asking.listen(false);
    assert_eq!(asker.sends(), [0; 0]);
    asker.asking.listen(true);
    assert_eq!(asker.sends(), [1, 2]);
    let message = asker.asking.next_message(&asker.membership, Instant::now() + ASK_AGAIN).unwrap();
    asker.asking.not_heard(&message);
    assert_eq!(asker.sends(), [1, 2]);
}

/// A report that would count twice.
fn report() -> Question {
    Question::Record { upstream: Name::new("up").unwrap(), result: CallResult::Success }
}

#[tokio::test(start_paused = true)]
async fn a_report_that_may_have_arrived_is_not_sent_to_the_next_owner() {
    let asker = Asker::new();
    let mut unconfirmed = asker.asking.ask(&report());
    let message = asker.asking.next_message(&asker.membership, Instant::now()).unwrap();
    asker.asking.not_confirmed(&message);
    asker.asking.follow(Some(SECOND));
    assert_eq!(asker.sends(), [0; 0]);
    assert!(matches!(unconfirmed.answer().await, Err(StoreError::Unconfirmed { .. })));

    let mut again = asker.asking.ask(&report());
    assert_eq!(asker.sends(), [2]);
    advance(ASK_AGAIN).await;
    let message = asker.asking.next_message(&asker.membership, Instant::now()).unwrap();
    asker.asking.not_heard(&message);
    asker.asking.follow(Some(FIRST));
    assert_eq!(asker.sends(), [0; 0], "only its repetition was not received");
    assert!(matches!(again.answer().await, Err(StoreError::Unconfirmed { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_report_that_nobody_received_is_sent_to_the_next_owner() {
    let asker = Asker::new();
    let _asked = asker.asking.ask(&report());
    let message = asker.asking.next_message(&asker.membership, Instant::now()).unwrap();
    asker.asking.not_heard(&message);
    asker.asking.follow(Some(SECOND));
    assert_eq!(asker.sends(), [1]);
}

#[tokio::test(start_paused = true)]
async fn what_is_due_soon_is_sent_again_with_what_is_due() {
    let (asker, started) = (Asker::new(), Instant::now());
    let _first = asker.asking.ask(&cancel(1));
    assert_eq!(asker.sends(), [1]);
    advance(AGAIN_TOGETHER / 2).await;
    let _second = asker.asking.ask(&cancel(2));
    assert_eq!(asker.sends(), [2]);
    tokio::time::sleep_until(started + ASK_AGAIN).await;
    assert_eq!(asker.sends(), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_process_leaves_although_its_window_is_full() {
    let asker = Asker::new();
    let _asked: Vec<_> = (0..6).map(|_| asker.asking.ask(&long_question())).collect();
    assert_eq!(asker.sends(), [1, 2, 3]);
    let left = asker.asking.leave(&asker.membership).unwrap();
    assert_eq!(left.sequences, [7]);
    assert_eq!(asker.sends(), [0; 0], "nothing is sent after it");
}
