//! "O consumo segue SEMPRE a ordem: high → normal → low", and "TTL (Time To Live)".

use eclusa::fake::Answer;

use super::super::program::starts;
use super::{Proxy, cpf};

#[tokio::test]
async fn jobs_are_served_by_priority_and_then_in_order_of_arrival() {
    let proxy = Proxy::start(Answer::status(200), &[]).await;
    proxy.program.pause("score").await;
    let mut jobs = Vec::new();
    for (number, priority) in ["low", "normal", "high", "low", "normal", "high"].into_iter().enumerate() {
        let number = u32::try_from(number).unwrap();
        jobs.push((number, proxy.take_in_as(&cpf(number), priority).await));
    }
    assert_eq!(proxy.program.metric("proxy_queue_size", &[("lane", "score")]).await, 6);
    proxy.program.resume("score").await;
    let mut served = Vec::new();
    for (number, job) in jobs {
        served.push((starts(&proxy.program.finished(&job).await)[0], number));
    }
    served.sort_unstable();
    let order: Vec<u32> = served.into_iter().map(|(_, number)| number).collect();
    assert_eq!(order, [2, 5, 1, 4, 0, 3]);
    assert_eq!(proxy.bureau.requests().len(), 6);
    assert_eq!(proxy.jobs_total("processed").await, 6);
    assert_eq!(proxy.program.metric("proxy_queue_size", &[("lane", "score")]).await, 0);
}
