//! Random traffic: lookups, misses, payments and bursts.

use futures_util::future::join_all;

use super::server::{CHECK, CLAIMS, Dict, LIST, PARTICIPANT, USER, USER_V2};
use super::{compared, equal, lookup, pay, start};
use crate::program::{Answer, Program};
use crate::redis_server::RedisServer;

const SEED: u64 = 20_260_701;
/// What each payer does.
const STEPS: usize = 25;
/// People, companies, and companies with letters in their number.
const PAYERS: [&str; 9] = [
    "11111111111",
    "22222222222",
    "33333333333",
    "44444444444",
    "55555555555555",
    "66666666666666",
    "12ABC34501DE35",
    "AAAAAAAAAAAA99",
    "0Z0Z0Z0Z0Z0Z12",
];
const FOUND: [&str; 4] =
    ["a@example.com", "+5511987654321", "12345678909", "123e4567-e89b-12d3-a456-426655440001"];
const MISSED: [&str; 4] =
    ["0000@example.com", "+550000", "00000000000", "00000000-e89b-12d3-a456-426655440001"];

struct Payer<'a> {
    id: &'static str,
    programs: &'a [Program],
    dict: &'a Dict,
    random: fastrand::Rng,
    unpaid: Vec<String>,
    lookups: usize,
}

impl<'a> Payer<'a> {
    fn program(&mut self) -> &'a Program {
        &self.programs[self.random.usize(..self.programs.len())]
    }

    fn key(&mut self) -> &'static str {
        let keys = if self.random.u32(..4) == 0 { MISSED } else { FOUND };
        keys[self.random.usize(..keys.len())]
    }

    async fn live(mut self) {
        for _ in 0..STEPS {
            match self.random.u32(..10) {
                0..=4 => self.look_up(1).await,
                5 => self.look_up(8).await,
                6..=7 => self.pay().await,
                _ => self.do_something_else().await,
            }
        }
    }

    /// A burst of lookups.
    async fn look_up(&mut self, many: usize) {
        let lookups: Vec<_> = (0..many)
            .map(|_| {
                self.lookups += 1;
                (self.program(), self.key(), format!("E{}-{}", self.id, self.lookups))
            })
            .collect();
        let answers = lookups.iter().map(|(program, key, id)| lookup(program, self.id, key, id));
        let answers = join_all(answers).await;
        for (answer, (_, key, id)) in answers.iter().zip(&lookups) {
            match answer.status {
                200 => self.unpaid.push(id.clone()),
                404 => assert!(MISSED.contains(key)),
                429 => assert!(!answer.header("retry-after").is_empty()),
                other => panic!("{other} {}", answer.text()),
            }
        }
    }

    async fn pay(&mut self) {
        if let Some(id) = self.unpaid.pop() {
            let program = self.program();
            pay(program, self.dict, &id).await;
        }
    }

    async fn do_something_else(&mut self) {
        let headers = [("PI-RequestingParticipant", "12345678")];
        let program = self.program();
        let status = [200, 404, 500, 503][self.random.usize(..4)];
        program.send("POST", "/proxy/dict/keys/check", &headers, "").await;
        let path = format!("/proxy/dict/claims/{status}");
        assert_eq!(program.send("GET", &path, &headers, "").await.status, status);
    }
}

async fn traffic(programs: &[Program], dict: &Dict) {
    let payer = |(number, id): (u64, &&'static str)| {
        let random = fastrand::Rng::with_seed(SEED + number);
        Payer { id, programs, dict, random, unpaid: Vec::new(), lookups: 0 }.live()
    };
    join_all((0..).zip(&PAYERS).map(payer)).await;
    assert!(dict.lookups() > 50, "{}", dict.lookups());
    assert_eq!(dict.refused(), Vec::<&str>::new(), "what might be needed was held");
    let (left, _) = dict.tokens(PARTICIPANT, "");
    assert!(left < 230.0, "a full bucket would prove nothing: {left}");
}

async fn all_equal(programs: &[Program], dict: &Dict) {
    for program in programs {
        for policy in [PARTICIPANT, CHECK, CLAIMS, LIST] {
            equal(program, dict, policy, "").await;
        }
        for payer in PAYERS {
            equal(program, dict, USER, payer).await;
            equal(program, dict, USER_V2, payer).await;
        }
    }
}

async fn three(redis: &RedisServer, dict: &Dict, every: &str) -> Vec<Program> {
    let mut programs = Vec::new();
    for _ in 0..3 {
        programs.push(start(dict, "G", &redis.url(), every).await);
    }
    programs
}

#[tokio::test]
async fn three_processes_count_as_the_dict_does() {
    let (redis, dict) = (RedisServer::start(), Dict::start('G', SEED).await);
    let programs = three(&redis, &dict, "1h").await;
    compared(&programs.iter().collect::<Vec<_>>(), 1).await;
    traffic(&programs, &dict).await;
    all_equal(&programs, &dict).await;
    assert_eq!(dict.listed().len(), 1, "one asked for all");
}

#[tokio::test]
async fn one_process_counts_as_the_dict_does() {
    let dict = Dict::start('G', SEED).await;
    let programs = [super::single(&dict, "G").await];
    traffic(&programs, &dict).await;
    all_equal(&programs, &dict).await;
}

/// Reconciling under load never grants extra tokens. It may cost a few: payments and calls in flight while the DICT counts
/// may be on either side. Another consumer had spent some before.
#[tokio::test]
async fn balances_that_are_compared_under_traffic_are_never_too_high() {
    let (redis, dict) = (RedisServer::start(), Dict::start('G', SEED).await);
    dict.spend(PARTICIPANT, 100.0);
    let programs = three(&redis, &dict, "100ms").await;
    equal(&programs[0], &dict, PARTICIPANT, "").await;
    let before = dict.listed().len();
    traffic(&programs, &dict).await;
    assert!(dict.listed().len() > before + 1, "{before} {:?}", dict.listed());
    let path = format!("/v1/policies/{PARTICIPANT}");
    let near = |ours: f64, theirs: f64| ours <= theirs + 0.05 && ours > theirs - 20.0;
    let settled = |answer: &Answer| {
        near(answer.json()["availableTokens"].as_f64().unwrap(), dict.tokens(PARTICIPANT, "").0)
    };
    for program in &programs {
        program.until(&path, settled).await;
    }
}
