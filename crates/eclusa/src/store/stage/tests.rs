use eclusa_core::layout::Question;
use eclusa_core::{Chain, JobId, LaneSpec, Name, NewJob, Spec, UpstreamSpec};

use super::*;
use crate::SystemClock;
use crate::store::verbs::apply;

const ASKER: ProcessId = ProcessId(9);

/// The stage of an owner whose writer is this test.
fn owner() -> Stage {
    let (lane, up) = (Name::new("work").unwrap(), Name::new("up").unwrap());
    let lane = LaneSpec::new(lane, Chain::new(vec![up.clone()]).unwrap());
    let spec = Spec::new(vec![lane], vec![UpstreamSpec::new(up, eclusa_core::gate::GateSpecs::default())]);
    let (clock, doorbell) = (Arc::new(SystemClock), Arc::new(Doorbell::default()));
    let own = eclusa_core::ProcessId(1);
    let stage = Stage::new(Engine::new(&spec.unwrap()), clock, Some(doorbell), Some(own));
    stage.take_group().unwrap();
    stage
}

/// Enqueues a job for another process.
fn asked(stage: &Stage, id: u64, bytes: usize) {
    let job = NewJob::new(JobId(id.into()), Name::new("work").unwrap(), "acme", vec![b'x'; bytes]);
    let enqueue = |engine: &mut Engine, now| vec![(id, apply(engine, Question::Enqueue(vec![job]), now))];
    stage.run_for(ASKER, bytes, enqueue).unwrap();
}

/// The sequences that are answered with each group, and the length of its records.
fn groups(stage: &Stage) -> Vec<(Vec<u64>, usize)> {
    let next = || stage.take_group().unwrap();
    std::iter::from_fn(next)
        .map(|group| {
            let answered = group.answers.into_values().flatten().map(|(sequence, _)| sequence);
            (answered.collect(), group.records.len())
        })
        .collect()
}

#[test]
fn a_group_has_a_megabyte_or_one_question_and_its_answers_leave_with_it() {
    let stage = owner();
    for (id, bytes) in [(1, 600_000), (2, 400_000), (3, 600_000), (4, 3_000_000), (5, 10)] {
        asked(&stage, id, bytes);
    }
    let groups = groups(&stage);
    let (answered, lengths): (Vec<_>, Vec<_>) = groups.into_iter().unzip();
    assert_eq!(answered, [vec![1, 2], vec![3], vec![4], vec![5]]);
    assert!((1_000_000..1_050_000).contains(&lengths[0]) && lengths[2] > 3_000_000, "{lengths:?}");
}

#[test]
fn a_group_is_not_completed_while_cleaning_adds_to_it() {
    let stage = owner();
    asked(&stage, 1, 1_000_000);
    assert!(stage.keep_group_open());
    asked(&stage, 2, 1_000_000);
    assert_eq!(groups(&stage).len(), 1, "what cleaning marked is in the next chunk");
    asked(&stage, 3, 1_000_000);
    asked(&stage, 4, 1_000_000);
    assert!(!stage.keep_group_open(), "the next chunk is complete");
    assert_eq!(groups(&stage).len(), 2);
}

#[test]
fn callers_of_complete_groups_learn_that_the_stage_has_stopped() {
    let stage = owner();
    let bytes = MAX_CHUNK;
    let tickets: Vec<_> = (0..3).map(|_| stage.run_with(bytes, |_, _| ()).unwrap().1.unwrap()).collect();
    stage.stop(StoreError::Stopped { cause: "over".into() });
    assert!(tickets.iter().all(|ticket| matches!(ticket.group.get(), Some(Err(_)))));
}
