//! The Redis store: what several processes share. Every verb is one function, so each is done whole or not at all, and the
//! server's clock is everybody's. Functions follow the rules of the engine; the conformance suite and a differential test
//! hold them to that.

mod answer;
mod connection;
mod functions;
mod keys;
mod news;
mod pack;
mod question;
mod rules;
mod search;
mod server;
mod together;
mod view;
mod wire;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use eclusa_core::gate::CallResult;
use eclusa_core::{
    Admission, Admit, Admitted, Advance, Advanced, Cancelled, Clock, DeadLetterView, Dispatch, Dispatched,
    Ended, EnqueueAnswer, Enqueued, JobId, JobPage, JobQuery, JobView, LaneSpec, LaneView, LeaseId, Name,
    NewJob, Payload, Replayed, SettleAnswer, Settled, Settlement, Span, Spec, Store, StoreError, Swept,
    TenantView, UpstreamView, Why,
};
use redis::{Client, ClientTlsConfig, TlsCertificates};
use thiserror::Error;

use self::connection::{Call, Connection, DEADLINE, SOON};
use self::functions::Function;
use self::keys::Keys;
pub use self::news::News;
use self::pack::{Value, pack};
use self::rules::Rules;
use self::together::Together;
use self::wire::{JobRecord, job_bytes, lease_bytes};
use super::Ack;
use crate::config::Tls;

/// How many things one function handles.
const MAX_ITEMS: usize = 100;

/// Why a Redis store could not be made.
#[derive(Debug, Error)]
pub enum RedisError {
    /// The address makes no sense.
    #[error("{0}")]
    Address(redis::RedisError),
    /// The rules cannot be written down.
    #[error("the rules cannot be packed: {0}")]
    Rules(#[from] rmp_serde::encode::Error),
}

/// How a process uses a server.
#[derive(Debug, Clone, Copy)]
pub struct RedisSettings<'a> {
    /// What the names of all keys begin with.
    pub prefix: &'a str,
    /// What "accepted" means.
    pub ack: Ack,
    /// The process, if the gates of its upstreams are its own; else they are everybody's.
    pub own_gates: Option<&'a str>,
    /// For `rediss://`.
    pub tls: &'a Tls,
}

/// A store on a Redis or Valkey server, shared by all processes that name it.
pub struct RedisStore {
    spec: Arc<Spec>,
    server: Arc<Server>,
    enqueues: Arc<Together<(Enqueued, Vec<Ended>)>>,
    settles: Arc<Together<(Settled, Vec<Ended>)>>,
    admits: Arc<Together<Admitted>>,
}

/// Where functions run, and what all of them are told.
struct Server {
    keys: Keys,
    connection: Connection,
    /// What is taken in goes this way, if it must reach a replica.
    intake: Option<Connection>,
    /// The fields under which the rules of this process are kept begin with it.
    rules: String,
    /// Whose gates of upstreams are asked; nothing for everybody's.
    gates_of: String,
    /// Tells the time instead of the server, in tests.
    clock: OnceLock<Arc<dyn Clock>>,
}

impl RedisStore {
    /// A store on the server at `url`, in keys that begin with `prefix`. It connects when it is first used.
    pub fn new(url: &str, prefix: &str, spec: &Spec) -> Result<Self, RedisError> {
        let tls = &Tls::default();
        Self::with(url, RedisSettings { prefix, ack: Ack::Write, own_gates: None, tls }, spec)
    }

    /// The same with other settings.
    pub fn with(url: &str, settings: RedisSettings<'_>, spec: &Spec) -> Result<Self, RedisError> {
        let client = match certificates(settings.tls) {
            Some(certificates) => Client::build_with_tls(url, certificates),
            None => Client::open(url),
        };
        let client = client.map_err(RedisError::Address)?;
        let keys = Keys::new(settings.prefix, "main");
        let rules = Rules::new(spec)?;
        let connection = Connection::new(client, rules.registration(&keys), settings.ack);
        let server = Arc::new(Server {
            keys,
            intake: (settings.ack == Ack::Replicate).then(|| connection.replicated()),
            connection,
            rules: rules.version,
            gates_of: settings.own_gates.unwrap_or_default().to_owned(),
            clock: OnceLock::new(),
        });
        Ok(Self {
            spec: Arc::new(spec.clone()),
            enqueues: Together::new(&server, &functions::ENQUEUE, SOON, answer::enqueued),
            settles: Together::new(&server, &functions::SETTLE, DEADLINE, answer::settled),
            admits: Together::new(&server, &functions::ADMIT, DEADLINE, answer::admitted),
            server,
        })
    }

    /// The same under a clock of its own instead of the server's, for tests.
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        self.server.clock.get_or_init(|| clock);
        self
    }

    /// Tells the rules of this process from others: the same where the rules are.
    pub fn rules_version(&self) -> &str {
        &self.server.rules
    }

    /// Says that process `id` lives, with what others may want to know of it, and tells who else does.
    pub async fn register(&self, id: &str, about: &str) -> Result<Vec<(String, String)>, StoreError> {
        let told = self.run(&functions::REGISTER, &[Value::text(id), Value::text(about)]).await?;
        view::registered(&told)
    }

    /// Says that somebody here waits for a job that its lane forgets as it ends, wherever that is, for so long.
    pub async fn want(&self, job: JobId, wait: Duration) -> Result<(), StoreError> {
        let mut commands = redis::pipe();
        let lives = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).saturating_add(1_000);
        commands.cmd("SET").arg(self.server.keys.wanted(job)).arg(1).arg("PX").arg(lives).ignore();
        self.server.connection.query(&commands, SOON).await
    }

    /// A job that was wanted, if it has ended not long ago and was forgotten then.
    pub async fn gone(&self, job: JobId) -> Result<Option<JobView>, StoreError> {
        let mut commands = redis::pipe();
        commands.get(self.server.keys.gone(job));
        let (packed,): (Option<Vec<u8>>,) = self.server.connection.query(&commands, DEADLINE).await?;
        packed.map(|packed| wire::forgotten(&packed, job)).transpose()
    }

    async fn run(&self, function: &Function, question: &[Value<'_>]) -> Result<Vec<u8>, StoreError> {
        self.server.run_packed(function, &pack(question), DEADLINE).await
    }

    /// What can be said of a job without asking the server.
    fn refused(&self, job: &NewJob) -> Result<&LaneSpec, Enqueued> {
        let lane = self.spec.lane(&job.lane).ok_or(Enqueued::UnknownLane)?;
        let in_lane = |name: &Name| lane.chain.names().contains(name);
        job.check(|name| self.spec.upstream(name).is_some(), in_lane).map_err(Enqueued::Invalid)?;
        Ok(lane)
    }

    fn chain_of(&self, ask: &Admit) -> Result<Vec<Name>, Admission> {
        let lane = match &ask.lane {
            Some(name) => Some(self.spec.lane(name).ok_or(Admission::UnknownLane)?),
            None => None,
        };
        if let (Some(lane), []) = (lane, ask.chain.as_slice()) {
            return Ok(lane.chain.names().to_vec());
        }
        match ask.chain.iter().find(|name| self.spec.upstream(name).is_none()) {
            Some(unknown) => Err(Admission::UnknownUpstream(unknown.clone())),
            None => Ok(ask.chain.clone()),
        }
    }

    async fn tell(&self, upstream: Name, word: &str) -> Result<Option<UpstreamView>, StoreError> {
        let ruled = Value::Bool(self.spec.upstream(&upstream).is_some());
        let question = [Value::text(upstream.as_str()), Value::text(word), ruled];
        let told = self.run(&functions::RECORD, &question).await?;
        view::upstream(&told, &upstream, &self.spec)
    }

    async fn view(&self, id: JobId, record: &[u8]) -> Result<JobView, StoreError> {
        let record = JobRecord::read(record)?;
        let mut beside = (None, None);
        if record.payload_beside() || record.answered() {
            let bytes = job_bytes(id);
            let mut commands = redis::pipe();
            commands.hget(self.server.keys.payloads(), &bytes).hget(self.server.keys.results(), &bytes);
            let (payload, result): (Option<Vec<u8>>, Option<Vec<u8>>) =
                self.server.connection.query(&commands, DEADLINE).await?;
            beside = (payload.map(Payload::from), result.map(Payload::from));
        }
        record.view(id, beside.0, beside.1)
    }
}

fn certificates(tls: &Tls) -> Option<TlsCertificates> {
    let client = tls.client.as_ref().map(|(certificate, key)| ClientTlsConfig {
        client_cert: certificate.clone(),
        client_key: key.reveal().into(),
    });
    let some = client.is_some() || tls.ca.is_some();
    some.then(|| TlsCertificates { client_tls: client, root_cert: tls.ca.clone() })
}

impl Server {
    /// Runs a function that is asked a packed question.
    async fn run_packed(
        &self,
        function: &Function,
        question: &[u8],
        within: Duration,
    ) -> Result<Vec<u8>, StoreError> {
        let now = self.clock.get().map_or(String::new(), |clock| clock.now().as_millis().to_string());
        let (rules, gates) = (self.rules.as_bytes(), self.keys.gates().as_bytes());
        let args = [now.as_bytes(), rules, gates, question, self.gates_of.as_bytes()];
        let connection = match &self.intake {
            Some(intake) if std::ptr::eq(function, &raw const functions::ENQUEUE) => intake,
            _ => &self.connection,
        };
        connection.run(&Call { function, key: self.keys.basin(), args }, self.patience(within)).await
    }

    /// How long a call may take. Under a clock of its own that does not matter.
    fn patience(&self, within: Duration) -> Duration {
        if self.clock.get().is_some() { Duration::from_mins(1) } else { within }
    }
}

impl Store for RedisStore {
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<EnqueueAnswer, StoreError> {
        let judged: Vec<_> = jobs.iter().map(|job| self.refused(job).map(|lane| (lane, job))).collect();
        let possible = judged.iter().filter_map(|judged| judged.as_ref().ok());
        let items = possible.map(|(lane, job)| pack(&[question::new_job(job, lane, None)])).collect();
        let mut taken = self.enqueues.ask(items).await?.into_iter();
        let mut answer = EnqueueAnswer::default();
        for judged in judged {
            match judged {
                Ok(_) => {
                    let Some((told, ended)) = taken.next() else { break };
                    answer.jobs.push(told);
                    answer.ended.extend(ended);
                }
                Err(refusal) => answer.jobs.push(refusal),
            }
        }
        Ok(answer)
    }

    async fn dispatch(&self, ask: Dispatch) -> Result<Dispatched, StoreError> {
        let lane = self.spec.lane(&ask.lane).map(|lane| lane.name.as_str());
        let max = i64::try_from(ask.max.min(MAX_ITEMS)).unwrap_or_default();
        let question = [
            Value::or_nil(lane, Value::text),
            Value::Int(max),
            question::span(ask.lease),
            Value::Int(ask.nonce.into()),
        ];
        answer::dispatched(&self.run(&functions::DISPATCH, &question).await?)
    }

    async fn advance(&self, ask: Advance) -> Result<Advanced, StoreError> {
        let mut fields = question::report(&ask.report);
        fields.extend([
            ("lease", Value::Owned(lease_bytes(ask.lease))),
            ("upstream", Value::text(ask.upstream.as_str())),
            ("failure", question::failure(&ask.failure)),
        ]);
        answer::advanced(&self.run(&functions::ADVANCE, &[Value::Map(fields)]).await?)
    }

    async fn extend(&self, leases: Vec<LeaseId>, lease: Span) -> Result<Vec<bool>, StoreError> {
        let mut alive = Vec::new();
        for some in leases.chunks(MAX_ITEMS) {
            let ids = some.iter().map(|lease| Value::Owned(lease_bytes(*lease))).collect();
            let told = self.run(&functions::EXTEND, &[question::span(lease), Value::List(ids)]).await?;
            alive.extend(wire::read::<Vec<bool>>(&told)?);
        }
        Ok(alive)
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> Result<SettleAnswer, StoreError> {
        let items = settlements.iter().map(|settlement| pack(&[question::settlement(settlement)])).collect();
        let mut answer = SettleAnswer::default();
        for (told, ended) in self.settles.ask(items).await? {
            answer.leases.push(told);
            answer.ended.extend(ended);
        }
        Ok(answer)
    }

    async fn cancel(&self, job: JobId) -> Result<Cancelled, StoreError> {
        answer::cancelled(&self.run(&functions::CANCEL, &[Value::Bytes(&job_bytes(job))]).await?)
    }

    async fn admit(&self, ask: Admit) -> Result<Admitted, StoreError> {
        // One that names what is not there is asked all the same, for nothing: whoever asks takes up lost jobs.
        let (lane, chain, refusal) = match self.chain_of(&ask) {
            Ok(chain) => (ask.lane.as_ref(), chain, None),
            Err(refusal) => (None, Vec::new(), Some(refusal)),
        };
        let question = [
            Value::or_nil(lane, |lane| Value::text(lane.as_str())),
            Value::List(chain.iter().map(|name| Value::text(name.as_str())).collect()),
            question::holds(&ask.holds),
            question::span(ask.lease),
            Value::Int(ask.nonce.into()),
        ];
        let told = self.admits.ask(vec![pack(&[Value::Owned(pack(&question))])]).await?;
        let told = told.into_iter().next();
        let told = told.ok_or_else(|| StoreError::Unavailable { cause: "it did not answer".into() })?;
        Ok(match refusal {
            Some(admission) => Admitted { admission, ..told },
            None => told,
        })
    }

    async fn record(&self, upstream: Name, result: CallResult) -> Result<Option<UpstreamView>, StoreError> {
        self.tell(upstream, question::result(result)).await
    }

    async fn recover(&self, upstream: Name) -> Result<Option<UpstreamView>, StoreError> {
        self.tell(upstream, "recover").await
    }

    async fn reset(&self, upstream: Name) -> Result<Option<UpstreamView>, StoreError> {
        self.tell(upstream, "reset").await
    }

    async fn replay(&self, lane: Name, letter: JobId, id: JobId) -> Result<Replayed, StoreError> {
        let Some(spec) = self.spec.lane(&lane) else { return Ok(Replayed::Unknown) };
        let mut commands = redis::pipe();
        commands.hget(self.server.keys.dead(&lane), &job_bytes(letter));
        let (found,): (Option<Vec<u8>>,) = self.server.connection.query(&commands, DEADLINE).await?;
        let Some(found) = found else { return Ok(Replayed::Unknown) };
        let found = view::letter(&found)?;
        let mut job = NewJob::new(id, lane, &found.tenant, found.payload);
        (job.level, job.chain, job.holds) = (found.level, Some(found.chain), found.holds);
        let question = Value::List(vec![question::new_job(&job, spec, Some(letter))]);
        answer::replayed(&self.run(&functions::ENQUEUE, &[question]).await?, id)
    }

    async fn discard(&self, lane: Name, letter: JobId) -> Result<bool, StoreError> {
        let question = [Value::text(lane.as_str()), Value::Owned(job_bytes(letter).into())];
        wire::read(&self.run(&functions::DISCARD, &question).await?)
    }

    async fn pause(&self, lane: Name, paused: bool) -> Result<bool, StoreError> {
        let question = [Value::text(lane.as_str()), Value::Bool(paused)];
        wire::read(&self.run(&functions::PAUSE, &question).await?)
    }

    async fn sweep(&self) -> Result<Swept, StoreError> {
        let lanes = self.spec.lanes().iter().map(|lane| Value::text(lane.name.as_str())).collect();
        answer::swept(&self.run(&functions::SWEEP, &[Value::List(lanes)]).await?)
    }

    async fn why(&self, job: JobId) -> Result<Option<Why>, StoreError> {
        view::why(&self.run(&functions::LOOK, &[Value::Bytes(&job_bytes(job))]).await?, &self.spec)
    }

    async fn job(&self, job: JobId) -> Result<Option<JobView>, StoreError> {
        let mut commands = redis::pipe();
        commands.hget(self.server.keys.jobs(), &job_bytes(job));
        let (record,): (Option<Vec<u8>>,) = self.server.connection.query(&commands, DEADLINE).await?;
        match record {
            Some(record) => self.view(job, &record).await.map(Some),
            None => Ok(None),
        }
    }

    async fn jobs(&self, query: JobQuery) -> Result<JobPage, StoreError> {
        self.search(&query).await
    }

    async fn lanes(&self) -> Result<Vec<LaneView>, StoreError> {
        let names = self.spec.lanes().iter().map(|lane| Value::text(lane.name.as_str())).collect();
        view::lanes(&self.run(&functions::LANES, &[Value::List(names)]).await?, &self.spec)
    }

    async fn upstreams(&self) -> Result<Vec<UpstreamView>, StoreError> {
        let names = self.spec.upstreams().iter().map(|upstream| Value::text(upstream.name.as_str()));
        let told = self.run(&functions::UPSTREAMS, &[Value::List(names.collect())]).await?;
        view::upstreams(&told, &self.spec)
    }

    async fn tenants(&self, lane: Name, from: u32, max: usize) -> Result<Vec<(u32, TenantView)>, StoreError> {
        let max = i64::try_from(max.min(MAX_ITEMS)).unwrap_or_default();
        let question = [Value::text(lane.as_str()), Value::Int(from.into()), Value::Int(max)];
        view::tenants(&self.run(&functions::TENANTS, &question).await?)
    }

    async fn dead_letter(&self, letter: JobId) -> Result<Option<DeadLetterView>, StoreError> {
        let mut commands = redis::pipe();
        for lane in self.spec.lanes() {
            commands.hget(self.server.keys.dead(&lane.name), &job_bytes(letter));
        }
        let found: Vec<Option<Vec<u8>>> = self.server.connection.query(&commands, DEADLINE).await?;
        for (lane, packed) in self.spec.lanes().iter().zip(found) {
            if let Some(packed) = packed {
                let letter_view = view::letter(&packed)?;
                return Ok(Some(DeadLetterView {
                    job: letter,
                    lane: lane.name.clone(),
                    letter: letter_view,
                }));
            }
        }
        Ok(None)
    }

    async fn dead_letters(
        &self,
        lane: Name,
        after: u64,
        max: usize,
    ) -> Result<Vec<(u64, DeadLetterView)>, StoreError> {
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let max = i64::try_from(max.min(MAX_ITEMS)).unwrap_or_default();
        let question = [Value::text(lane.as_str()), Value::Int(after), Value::Int(max)];
        view::letters(&self.run(&functions::LETTERS, &question).await?, &lane)
    }
}
