//! How long a mail takes from intake until an SES-like server has it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use eclusa::fake::{Answer, FakeUpstream};
use eclusa::request::Request;
use serde_json::json;

use crate::Failed;
use crate::http::{Server, client, trip};
use crate::timing::now;

/// Mails, sent sequentially. The first ones open connections and are not counted.
const MAILS: u64 = 500;
const WARM_UP: u64 = 20;

const CREDENTIALS: &str = "[default]\naws_access_key_id = AKIDBENCH\naws_secret_access_key = bench\n";
const CONFIG: &str = r#"
[server]
listen = "127.0.0.1:0"
[store]
url = "embedded:./data"
[log]
format = "json"
[lanes.email]
chain = ["ses"]
ttl = "24h"
concurrency = 5
fairness = { batch = 3 }
keep = { max = 0 }
[upstreams.ses]
kind = "ses"
region = "us-east-1"
url = "http://SES"
credentials_file = "aws.ini"
"#;

/// The median and the 95th percentile.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Times {
    pub(crate) p50_ms: f64,
    pub(crate) p95_ms: f64,
}

pub(crate) fn measure(dir: &Path) -> Result<Times, Failed> {
    let dir = dir.join("latency");
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("aws.ini"), CREDENTIALS)?;
    let mut times = tokio::runtime::Runtime::new()?.block_on(async {
        let ses = FakeUpstream::start(Answer::status(200).body(r#"{"MessageId":"0100"}"#)).await?;
        let config = CONFIG.replace("SES", &ses.addr().to_string());
        let eclusa = Server::eclusa(&dir, &config)?;
        let client = client(&eclusa.address)?;
        let mut times = Vec::new();
        for mail in 0..MAILS + WARM_UP {
            let request = mail_request(mail);
            let started = now();
            let key = mail.to_string();
            let arrived = async {
                ses.wait_for(mail + 1).await;
                now() - started
            };
            let (posted, took) = tokio::join!(trip(&client, &request, &key), arrived);
            posted?;
            times.push(took);
        }
        Ok::<_, Failed>(times)
    })?;
    fs::remove_dir_all(&dir)?;
    let mut times: Vec<Duration> = times.split_off(usize::try_from(WARM_UP)?);
    times.sort();
    let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1_000.0;
    Ok(Times { p50_ms: at(50), p95_ms: at(95) })
}

fn mail_request(mail: u64) -> Request {
    let text = "Seu pedido foi enviado. ".repeat(60);
    let message = json!({
        "from": "loja@example.com", "to": [format!("cliente-{mail}@example.org")],
        "subject": "Pedido enviado", "text": text, "html": format!("<p>{text}</p>"),
    });
    let body = json!({ "tenant": format!("empresa-{}", mail % 20), "message": message });
    Request {
        method: "POST".into(),
        path: "/v1/lanes/email/jobs".into(),
        query: None,
        headers: vec![("content-type".into(), b"application/json".to_vec())],
        body: body.to_string().into_bytes(),
    }
}
