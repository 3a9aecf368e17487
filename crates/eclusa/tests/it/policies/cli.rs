//! `eclusa policies`.

use eclusa::fake::{Answer, FakeUpstream};

use super::{DICT, PERSON, lookup, settles_to, start};
use crate::cli::run_at;

#[tokio::test]
async fn balances_are_listed_shown_and_credited() {
    let upstream = FakeUpstream::start(Answer::status(404)).await.unwrap();
    let program = start(&upstream.url(), DICT).await;
    let url = program.url();
    lookup(&program, PERSON, "E1").await;
    settles_to(&program, "USER", PERSON, 80).await;
    let list = run_at(&url, &["policies", "ls"]).await.ok();
    let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0][..3], ["POLICY", "CLASS", "SCOPE"], "{list}");
    assert_eq!(
        (lines[1][0], lines[1][3], lines[1][5]),
        ("USER", "80/100", "24h"),
        "the emptiest first: {list}"
    );
    // Twenty in the last minute, or part of that if it is another minute by now.
    let empty_in: u32 = lines[1][6].trim_end_matches('m').parse().expect("at least two minutes");
    assert!((4..=60).contains(&empty_in), "{list}");
    assert_eq!((lines[3][0], lines[3][5], lines[3][6]), ("LISTS", "-", "-"), "{list}");
    let one = run_at(&url, &["policies", "get", "USER", "--scope", PERSON, "-o", "json"]).await.json();
    assert_eq!((&one["name"], &one["availableTokens"]), (&"USER".into(), &80.into()));
    assert!((1.0..=20.0).contains(&one["spentLastMinute"].as_f64().unwrap()), "{one}");
    assert_eq!(run_at(&url, &["policies", "credit", "payment", "E1"]).await.ok(), "credited 2.0\n");
    assert_eq!(
        run_at(&url, &["policies", "credit", "payment", "E1"]).await.ok(),
        "credited 0.0, already counted\n"
    );
    run_at(&url, &["policies", "credit", "payment", "E2"]).await.failed(3);
    run_at(&url, &["policies", "get", "NONE"]).await.failed(3);
}
