//! Layouts of questions and answers about dead letters and their replays.

use super::convert::{layout_enum, layout_struct};
use super::question::NewJobLayout;
use super::reply::SpecErrorLayout;
use super::view::{DeadLetterViewLayout, EndedLayout};
use crate::verbs::{
    BulkAnswer, BulkAsk, BulkStatus, BulkView, CountLetters, DiscardedLetters, LetterBy, LetterCounts,
    LetterCursor, LetterFilter, LetterPage, LetterQuery, Replay, Replayed, ReplayedLetter,
};

layout_struct!(LetterFilterLayout<'a> = LetterFilter {
    lanes: Option<Vec<&'a str>>,
    tenant: Option<&'a str>,
    tenants: Option<Vec<&'a str>>,
    code: Option<&'a str>,
    since: Option<u64>,
    until: Option<u64>,
});

layout_struct!(LetterCursorLayout<'a> = LetterCursor { lane: &'a str, number: u64 });

layout_struct!(LetterQueryLayout<'a> = LetterQuery {
    filter: LetterFilterLayout<'a>,
    after: Option<LetterCursorLayout<'a>>,
    max: u64,
});

layout_struct!(LetterPageLayout<'a> = LetterPage {
    letters: Vec<DeadLetterViewLayout<'a>>,
    next: Option<LetterCursorLayout<'a>>,
});

layout_enum!(LetterByLayout = LetterBy { Code, Tenant, Lane });

layout_struct!(CountLettersLayout<'a> = CountLetters {
    filter: LetterFilterLayout<'a>,
    by: LetterByLayout,
    after: Option<LetterCursorLayout<'a>>,
    idle: bool,
    trend_until: Option<u64>,
});

layout_struct!(LetterCountsLayout<'a> = LetterCounts {
    counts: Vec<(&'a str, u64)>,
    trends: Vec<(&'a str, Vec<u64>)>,
    next: Option<LetterCursorLayout<'a>>,
});

layout_struct!(DiscardedLettersLayout<'a> = DiscardedLetters {
    gone: Vec<(&'a str, u128)>,
    next: Option<LetterCursorLayout<'a>>,
});

layout_struct!(ReplayLayout<'a> = Replay {
    lane: &'a str,
    letter: u128,
    id: u128,
    edit: Option<NewJobLayout<'a>>,
});

layout_enum!(ReplayedLayout<'a> = Replayed {
    As(job: u128, ended: Vec<EndedLayout<'a>>),
    Unknown,
    QueueFull,
    IdTaken,
    Invalid(problem: SpecErrorLayout<'a>),
});

layout_struct!(ReplayedLetterLayout<'a> = ReplayedLetter {
    lane: &'a str,
    letter: u128,
    job: u128,
    bulk: Option<u128>,
});

layout_enum!(BulkAskLayout<'a> = BulkAsk {
    Begin { id: u128, filter: LetterFilterLayout<'a> },
    Show(id: u128),
    List,
    Stop(id: u128),
});

layout_enum!(BulkAnswerLayout<'a> = BulkAnswer { Replays(replays: Vec<BulkViewLayout<'a>>), TooMany });

layout_struct!(BulkViewLayout<'a> = BulkView {
    id: u128,
    filter: LetterFilterLayout<'a>,
    status: BulkStatusLayout,
    total: u64,
    replayed: u64,
    failed: u64,
    running: u64,
    remaining: u64,
    began: u64,
    ended: Option<u64>,
});

layout_enum!(BulkStatusLayout = BulkStatus { Counting, Running, Done, Stopped });
