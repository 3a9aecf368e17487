//! A DICT that counts by the published rules, independently of Eclusa's code.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::time::Instant;

pub(crate) const USER: &str = "ENTRIES_READ_USER_ANTISCAN";
pub(crate) const USER_V2: &str = "ENTRIES_READ_USER_ANTISCAN_V2";
pub(crate) const PARTICIPANT: &str = "ENTRIES_READ_PARTICIPANT_ANTISCAN";
pub(crate) const CHECK: &str = "KEYS_CHECK";
pub(crate) const CLAIMS: &str = "CLAIMS_READ";
pub(crate) const LIST: &str = "POLICIES_LIST";

/// Refill per minute and size, by category.
const CATEGORIES: [(char, f64, f64); 8] = [
    ('A', 25_000.0, 50_000.0),
    ('B', 20_000.0, 40_000.0),
    ('C', 15_000.0, 30_000.0),
    ('D', 8_000.0, 16_000.0),
    ('E', 2_500.0, 5_000.0),
    ('F', 250.0, 500.0),
    ('G', 25.0, 250.0),
    ('H', 2.0, 50.0),
];

/// Refill per minute and size of the other policies of a participant.
const FIXED: [(&str, f64, f64); 25] = [
    ("ENTRIES_WRITE", 1_200.0, 36_000.0),
    ("ENTRIES_UPDATE", 600.0, 600.0),
    (CLAIMS, 600.0, 18_000.0),
    ("CLAIMS_WRITE", 1_200.0, 36_000.0),
    ("CLAIMS_LIST_WITH_ROLE", 40.0, 200.0),
    ("CLAIMS_LIST_WITHOUT_ROLE", 10.0, 50.0),
    ("SYNC_VERIFICATIONS_WRITE", 10.0, 50.0),
    ("CIDS_FILES_READ", 10.0, 50.0),
    ("CIDS_EVENTS_LIST", 20.0, 100.0),
    ("CIDS_ENTRIES_READ", 1_200.0, 36_000.0),
    ("INFRACTION_REPORTS_READ", 600.0, 18_000.0),
    ("INFRACTION_REPORTS_WRITE", 1_200.0, 36_000.0),
    ("INFRACTION_REPORTS_LIST_WITH_ROLE", 40.0, 200.0),
    ("INFRACTION_REPORTS_LIST_WITHOUT_ROLE", 10.0, 50.0),
    (CHECK, 70.0, 70.0),
    ("REFUNDS_READ", 1_200.0, 36_000.0),
    ("REFUNDS_WRITE", 2_400.0, 72_000.0),
    ("REFUND_LIST_WITH_ROLE", 40.0, 200.0),
    ("REFUND_LIST_WITHOUT_ROLE", 10.0, 50.0),
    ("FRAUD_MARKERS_READ", 600.0, 18_000.0),
    ("FRAUD_MARKERS_WRITE", 1_200.0, 36_000.0),
    ("FRAUD_MARKERS_LIST", 600.0, 18_000.0),
    ("PERSONS_STATISTICS_READ", 12_000.0, 36_000.0),
    ("POLICIES_READ", 60.0, 200.0),
    (LIST, 6.0, 20.0),
];

struct Bucket {
    tokens: f64,
    size: f64,
    per_second: f64,
    at: Instant,
}

impl Bucket {
    fn new(per_minute: f64, size: f64) -> Self {
        Self { tokens: size, size, per_second: per_minute / 60.0, at: Instant::now() }
    }

    fn tokens(&mut self) -> f64 {
        let now = Instant::now();
        let gained = (now - self.at).as_secs_f64() * self.per_second;
        (self.tokens, self.at) = ((self.tokens + gained).min(self.size), now);
        self.tokens
    }

    fn add(&mut self, tokens: f64) {
        self.tokens = (self.tokens() + tokens).min(self.size);
    }
}

/// The payer of a lookup, and its policy.
type Lookup = (String, &'static str);

struct Count {
    category: char,
    participant: BTreeMap<&'static str, Bucket>,
    users: BTreeMap<(&'static str, String), Bucket>,
    /// Lookups that found a key, by their `PI-EndToEndId`, until they are paid.
    unpaid: BTreeMap<String, Lookup>,
    lookups: usize,
    refused: Vec<&'static str>,
    listed: Vec<Instant>,
    random: fastrand::Rng,
}

/// A running server.
pub(crate) struct Dict {
    count: Arc<Mutex<Count>>,
    address: SocketAddr,
    url: String,
}

impl Dict {
    /// Starts for a participant of this category. The latency of its answers is random, from `seed`.
    pub(crate) async fn start(category: char, seed: u64) -> Self {
        let (_, refill, size) = *CATEGORIES.iter().find(|(name, ..)| *name == category).unwrap();
        let mut participant: BTreeMap<_, _> =
            FIXED.iter().map(|(name, refill, size)| (*name, Bucket::new(*refill, *size))).collect();
        participant.insert("CIDS_FILES_WRITE", Bucket::new(40.0 / 1_440.0, 200.0));
        for name in [PARTICIPANT, "ENTRIES_STATISTICS_READ"] {
            participant.insert(name, Bucket::new(refill, size));
        }
        let count = Arc::new(Mutex::new(Count {
            category,
            participant,
            users: BTreeMap::new(),
            unpaid: BTreeMap::new(),
            lookups: 0,
            refused: Vec::new(),
            listed: Vec::new(),
            random: fastrand::Rng::with_seed(seed),
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("http://{address}/api/v2");
        let router = Router::new().fallback(answer).with_state(count.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { count, address, url }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.count.lock().unwrap()
    }

    /// A payment order was sent for the lookup with this id.
    pub(crate) fn paid(&self, end_to_end_id: &str) {
        let mut count = self.count();
        let (payer, policy) = count.unpaid.remove(end_to_end_id).unwrap();
        let credit = if payer.len() == 11 { 1.0 } else { 2.0 };
        count.user(policy, &payer).add(credit);
        count.of(PARTICIPANT).add(1.0);
    }

    /// The balance, and the refill per second.
    pub(crate) fn tokens(&self, policy: &'static str, payer: &str) -> (f64, f64) {
        let mut count = self.count();
        let bucket = if payer.is_empty() { count.of(policy) } else { count.user(policy, payer) };
        (bucket.tokens(), bucket.per_second)
    }

    /// Spends tokens of the participant, as another consumer would.
    pub(crate) fn spend(&self, policy: &'static str, tokens: f64) {
        self.count().of(policy).add(-tokens);
    }

    /// The policies that caused a 429.
    pub(crate) fn refused(&self) -> Vec<&'static str> {
        self.count().refused.clone()
    }

    /// The counted lookups.
    pub(crate) fn lookups(&self) -> usize {
        self.count().lookups
    }

    /// The times at which it was asked for its balances.
    pub(crate) fn listed(&self) -> Vec<Instant> {
        self.count().listed.clone()
    }
}

impl Count {
    fn of(&mut self, policy: &'static str) -> &mut Bucket {
        self.participant.get_mut(policy).unwrap()
    }

    /// A CPF has 11 characters and a CNPJ 14.
    fn user(&mut self, policy: &'static str, payer: &str) -> &mut Bucket {
        let (refill, size) = match payer.len() {
            11 => (2.0, 100.0),
            14 => (20.0, 1_000.0),
            other => panic!("a payer of {other} characters"),
        };
        self.users.entry((policy, payer.to_owned())).or_insert_with(|| Bucket::new(refill, size))
    }

    fn get_entry(&mut self, key: &str, headers: &HeaderMap) -> u16 {
        let header = |name| headers.get(name).unwrap().to_str().unwrap().to_owned();
        let (payer, id) = (header("PI-PayerId"), header("PI-EndToEndId"));
        let policy = if key.contains('@') || key.starts_with('+') { USER } else { USER_V2 };
        let (status, user_cost, cost) = if key.contains("0000") { (404, 20.0, 3.0) } else { (200, 1.0, 1.0) };
        // The strictest reading of the rules: missing tokens cannot be spent.
        for (lacks, name) in [
            (self.user(policy, &payer).tokens() < user_cost, policy),
            (self.of(PARTICIPANT).tokens() < cost, PARTICIPANT),
        ] {
            if lacks {
                self.refused.push(name);
                return 429;
            }
        }
        self.user(policy, &payer).add(-user_cost);
        self.of(PARTICIPANT).add(-cost);
        self.lookups += 1;
        if status == 200 {
            self.unpaid.insert(id, (payer, policy));
        }
        status
    }

    /// Everything else: each status but 500 costs one.
    fn other(&mut self, policy: &'static str, status: u16) -> u16 {
        if self.of(policy).tokens() < 1.0 {
            self.refused.push(policy);
            return 429;
        }
        if status != 500 {
            self.of(policy).add(-1.0);
        }
        status
    }

    fn list(&mut self) -> String {
        let mut xml = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\" ?>\n<ListPoliciesResponse>\n  <Signature></Signature>\n  \
             <CorrelationId>B20220902101925801123456781A6998</CorrelationId>\n  <Category>{}</Category>\n  <Policies>\n",
            self.category
        );
        for (name, bucket) in &mut self.participant {
            let (tokens, size) = (bucket.tokens().floor(), bucket.size);
            let per_minute = bucket.per_second * 60.0;
            let (refill, period) = if per_minute < 1.0 { (40.0, 86_400) } else { (per_minute.round(), 60) };
            writeln!(
                xml,
                "    <Policy>\n      <AvailableTokens>{tokens}</AvailableTokens>\n      <Capacity>{size}</Capacity>\n      \
                 <RefillTokens>{refill}</RefillTokens>\n      <RefillPeriodSec>{period}</RefillPeriodSec>\n      \
                 <Name>{name}</Name>\n    </Policy>"
            )
            .unwrap();
        }
        xml + "  </Policies>\n</ListPoliciesResponse>\n"
    }
}

async fn answer(
    State(count): State<Arc<Mutex<Count>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let path = uri.path().strip_prefix("/api/v2/").unwrap_or_default().to_owned();
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (status, body, takes) = {
        let mut count = count.lock().unwrap();
        assert!(headers.contains_key("PI-RequestingParticipant"), "{method} {uri}");
        let mut body = String::new();
        let status = match (method.as_str(), parts.as_slice()) {
            ("GET", ["entries", key]) => count.get_entry(key, &headers),
            ("POST", ["keys", "check"]) => count.other(CHECK, 200),
            // It gives the requested answer.
            ("GET", ["claims", status]) => count.other(CLAIMS, status.parse().unwrap()),
            ("GET", ["policies"]) => {
                count.listed.push(Instant::now());
                let status = count.other(LIST, 200);
                body = count.list();
                status
            }
            other => panic!("not simulated: {other:?}"),
        };
        (status, body, count.random.u64(..20))
    };
    tokio::time::sleep(Duration::from_millis(takes)).await;
    let status = http::StatusCode::from_u16(status).unwrap();
    (status, [("content-type", "application/xml")], body).into_response()
}
