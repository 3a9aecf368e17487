//! An SES-like server: it verifies signatures of received requests as AWS documents them, and gives scripted answers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use eclusa::SystemClock;
use eclusa::fake::{Answer, Behaviour, FakeUpstream, ReceivedRequest};
use eclusa_core::Clock;
use ring::{digest, hmac};
use serde_json::{Value, json};

pub(crate) const KEY_ID: &str = "AKIDOFTHETESTS";
pub(crate) const SECRET: &str = "secret/of+the/tests";

/// The environment with these credentials.
pub(crate) const ENV: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", KEY_ID), ("AWS_SECRET_ACCESS_KEY", SECRET)];

/// The credentials that the server accepts.
#[derive(Clone)]
pub(crate) struct Account {
    pub(crate) region: String,
    pub(crate) id: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
    /// How far the server's clock is ahead of ours.
    pub(crate) ahead: Duration,
}

impl Account {
    pub(crate) fn in_region(region: &str) -> Self {
        let (region, id, secret) = (region.to_owned(), KEY_ID.to_owned(), SECRET.to_owned());
        Self { region, id, secret, token: None, ahead: Duration::ZERO }
    }
}

/// SES of one region.
pub(crate) struct Ses {
    pub(crate) http: FakeUpstream,
    account: Arc<Mutex<Account>>,
}

impl Ses {
    /// Gives these answers to correctly signed requests, then accepts.
    pub(crate) async fn start(account: Account, script: impl IntoIterator<Item = Answer>) -> Self {
        let account = Arc::new(Mutex::new(account));
        let (known, script) = (account.clone(), Mutex::new(script.into_iter().collect::<VecDeque<_>>()));
        let answer = move |seen: &ReceivedRequest| {
            let account = known.lock().unwrap().clone();
            let answer = match verify(seen, &account) {
                Err(problem) => error(403, "InvalidSignatureException", &problem),
                Ok(()) => script.lock().unwrap().pop_front().unwrap_or_else(|| accepted("0100-accepted")),
            };
            let date = std::time::UNIX_EPOCH + Duration::from_millis(now(&account));
            answer.header("date", &httpdate::fmt_http_date(date))
        };
        Self { http: FakeUpstream::start(Behaviour::by(answer)).await.unwrap(), account }
    }

    /// Changes the accepted credentials.
    pub(crate) fn knows(&self, account: Account) {
        *self.account.lock().unwrap() = account;
    }

    /// The bodies of all requests, correctly signed or not.
    pub(crate) fn bodies(&self) -> Vec<Value> {
        let requests = self.http.requests();
        requests.iter().map(|seen| serde_json::from_slice(&seen.body).unwrap()).collect()
    }

    /// The recipients of each request.
    pub(crate) fn recipients(&self) -> Vec<Vec<String>> {
        let to = |body: &Value| serde_json::from_value(body["Destination"]["ToAddresses"].clone()).unwrap();
        self.bodies().iter().map(to).collect()
    }

    /// The mail of the first request, as MIME.
    pub(crate) fn mail(&self) -> String {
        let data = self.bodies()[0]["Content"]["Raw"]["Data"].as_str().unwrap().to_owned();
        String::from_utf8(BASE64_STANDARD.decode(data).unwrap()).unwrap()
    }
}

pub(crate) fn accepted(id: &str) -> Answer {
    Answer::status(200)
        .header("content-type", "application/json")
        .body(json!({ "MessageId": id }).to_string())
}

pub(crate) fn error(status: u16, name: &str, message: &str) -> Answer {
    let answer = Answer::status(status).header("x-amzn-errortype", name);
    answer.body(json!({ "message": message }).to_string())
}

fn now(account: &Account) -> u64 {
    SystemClock.now().as_millis() + u64::try_from(account.ahead.as_millis()).unwrap()
}

/// The signature, as described in "Create a signed AWS API request" of the AWS documentation.
fn verify(seen: &ReceivedRequest, account: &Account) -> Result<(), String> {
    if (seen.method.as_str(), seen.path.as_str(), &seen.query) != ("POST", "/v2/email/outbound-emails", &None)
    {
        return Err(format!("no such operation: {} {}", seen.method, seen.path));
    }
    let header = |name: &str| seen.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let authorization = header("authorization").strip_prefix("AWS4-HMAC-SHA256 ").ok_or("no signature")?;
    let part = |name: &str| {
        let mut parts = authorization.split(", ");
        parts.find_map(|part| part.strip_prefix(name)).ok_or_else(|| format!("no {name}"))
    };
    let (credential, names, signature) = (part("Credential=")?, part("SignedHeaders=")?, part("Signature=")?);
    let time = header("x-amz-date");
    let scope = format!("{}/{}/ses/aws4_request", &time.get(..8).ok_or("no date")?, account.region);
    if credential != format!("{}/{scope}", account.id) {
        return Err(format!("the credential should be scoped to {scope}"));
    }
    if Some(header("x-amz-security-token")).filter(|token| !token.is_empty()) != account.token.as_deref() {
        return Err("the security token included in the request is invalid".into());
    }
    for needed in ["content-type", "host", "x-amz-date"] {
        if !names.split(';').any(|name| name == needed) {
            return Err(format!("{needed} must be signed"));
        }
    }
    if account.token.is_some() && !names.ends_with("x-amz-security-token") {
        return Err("x-amz-security-token must be signed".into());
    }
    let signed: jiff::Timestamp = jiff::fmt::strtime::parse("%Y%m%dT%H%M%S%z", time.replace('Z', "+0000"))
        .unwrap()
        .to_timestamp()
        .unwrap();
    let off = signed.as_millisecond().abs_diff(i64::try_from(now(account)).unwrap());
    if off > 300_000 {
        return Err(format!("Signature expired or not yet current: {off} ms"));
    }

    let headers = names.split(';').map(|name| format!("{name}:{}\n", header(name).trim()));
    let headers = headers.collect::<Vec<_>>().concat();
    let hash = |bytes: &[u8]| hex(digest::digest(&digest::SHA256, bytes).as_ref());
    let canonical = format!("POST\n{}\n\n{headers}\n{names}\n{}", seen.path, hash(&seen.body));
    let to_sign = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hash(canonical.as_bytes()));
    let mac = |key: &[u8], text: &str| {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
    };
    let key =
        scope.split('/').fold(format!("AWS4{}", account.secret).into_bytes(), |key, part| mac(&key, part));
    if hex(&mac(&key, &to_sign)) != signature {
        return Err("the request signature we calculated does not match".into());
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}
