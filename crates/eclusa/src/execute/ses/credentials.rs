//! Who sends: credentials of AWS, and where they come from.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use eclusa_core::{Span, Time};
use tokio::sync::Mutex;

use super::ini::credentials_of_profile;
use super::metadata::Metadata;
use crate::config::{CredentialSource, Secret};
use crate::execute::CallContext;
use crate::execute::http::TlsError;

/// How often a file is looked at.
const LOOK_EVERY: Span = Span::from_secs(2);
/// The largest file of credentials: more is a mistake.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Credentials that expire are renewed so long before.
const RENEW_BEFORE: Span = Span::from_secs(5 * 60);
/// How long after a renewal that failed the next is tried, while the old ones are valid.
const TRY_AGAIN: Span = Span::from_secs(30);
/// The same where there are none: those that come meanwhile do not wait for another failure.
const TRY_AGAIN_WITHOUT: Span = Span::from_secs(1);

/// What signs requests.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Names the key; sent with every request.
    pub access_key_id: String,
    /// Signs; never sent.
    pub secret_access_key: Secret,
    /// Sent with every request, if the key is a temporary one.
    pub session_token: Option<Secret>,
}

/// The id is no secret, but names an account.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(…)")
    }
}

/// Gives the credentials of the moment. Asks whoever has them no more often than needed, and goes on with the old ones while
/// newer ones cannot be read.
pub(super) struct Provider {
    source: Source,
}

enum Source {
    Fixed(Arc<Credentials>),
    File { path: PathBuf, profile: String, read: Mutex<FileRead> },
    Metadata { from: Metadata, state: Mutex<MetadataState> },
}

/// What a file said.
#[derive(Default)]
struct FileRead {
    credentials: Option<Arc<Credentials>>,
    stamp: Option<Stamp>,
    looked: Option<Time>,
}

/// Tells one state of a file from another.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    bytes: u64,
}

/// What a metadata service said.
#[derive(Default)]
struct MetadataState {
    got: Option<Got>,
    /// Why there was nothing, and when that was.
    failed: Option<(Time, String)>,
}

/// What it gave.
struct Got {
    credentials: Arc<Credentials>,
    renew_at: Time,
    expires: Option<Time>,
}

impl Provider {
    pub(super) fn new(source: &CredentialSource) -> Result<Self, TlsError> {
        let source = match source {
            CredentialSource::Fixed(credentials) => Source::Fixed(Arc::new(credentials.clone())),
            CredentialSource::File { path, profile } => {
                Source::File { path: path.clone(), profile: profile.clone(), read: Mutex::default() }
            }
            CredentialSource::Metadata(from) => {
                Source::Metadata { from: Metadata::new(from)?, state: Mutex::default() }
            }
        };
        Ok(Self { source })
    }

    /// The credentials to sign with now, or why there are none.
    pub(super) async fn get(&self, context: &CallContext<'_>) -> Result<Arc<Credentials>, String> {
        let now = context.clock.now();
        match &self.source {
            Source::Fixed(credentials) => Ok(credentials.clone()),
            Source::File { path, profile, read } => read.lock().await.look(path, profile, now),
            // One caller renews, the others wait for it; how long is bounded by the timeouts of the calls.
            Source::Metadata { from, state } => state.lock().await.renewed(from, context, now).await,
        }
    }

    /// AWS refused these credentials: if they are still the ones in use, they are read anew for the next call.
    pub(super) async fn refused(&self, used: &Arc<Credentials>) {
        match &self.source {
            Source::Fixed(_) => {}
            Source::File { read, .. } => {
                let mut read = read.lock().await;
                if read.credentials.as_ref() == Some(used) {
                    *read = FileRead::default();
                }
            }
            Source::Metadata { state, .. } => {
                let mut state = state.lock().await;
                if state.got.as_ref().is_some_and(|got| got.credentials == *used) {
                    *state = MetadataState::default();
                }
            }
        }
    }
}

impl FileRead {
    fn look(&mut self, path: &Path, profile: &str, now: Time) -> Result<Arc<Credentials>, String> {
        if let (Some(credentials), Some(looked)) = (&self.credentials, self.looked)
            && now.since(looked) < LOOK_EVERY
        {
            return Ok(credentials.clone());
        }
        self.looked = Some(now);
        match (self.read_if_changed(path, profile), &self.credentials) {
            (Ok(()), Some(credentials)) => Ok(credentials.clone()),
            (Err(problem), Some(credentials)) => {
                tracing::warn!(file = %path.display(), problem, "Credentials not read, the old ones stay in use");
                Ok(credentials.clone())
            }
            (Err(problem), None) => Err(format!("no credentials: {} {problem}", path.display())),
            (Ok(()), None) => Err(format!("no credentials in {}", path.display())),
        }
    }

    /// Only a whole, valid profile replaces what is in use: a file may be read while it is written.
    fn read_if_changed(&mut self, path: &Path, profile: &str) -> Result<(), String> {
        let about = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
        let stamp = Stamp { modified: about.modified().ok(), bytes: about.len() };
        if self.stamp == Some(stamp) {
            return Ok(());
        }
        if stamp.bytes > MAX_FILE_BYTES {
            return Err("has more than 1 MiB".into());
        }
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
        let read = credentials_of_profile(&text, profile);
        // What is wrong with a file is said once, as long as there are others to use.
        if read.is_ok() || self.credentials.is_some() {
            self.stamp = Some(stamp);
        }
        self.credentials = Some(Arc::new(read?));
        Ok(())
    }
}

impl MetadataState {
    async fn renewed(
        &mut self,
        from: &Metadata,
        context: &CallContext<'_>,
        now: Time,
    ) -> Result<Arc<Credentials>, String> {
        if let Some(got) = self.got.as_ref().filter(|got| now < got.renew_at) {
            return Ok(got.credentials.clone());
        }
        if let Some((at, problem)) = &self.failed
            && now.since(*at) < TRY_AGAIN_WITHOUT
        {
            return Err(problem.clone());
        }
        let asked = from.ask(context).await;
        match (asked, &mut self.got) {
            (Ok((credentials, expires)), got) => {
                let credentials = Arc::new(credentials);
                // Those that expire soon are used until then, and asked for again meanwhile.
                let soonest = now + TRY_AGAIN;
                let renew_at = expires.map_or(now + RENEW_BEFORE, |at| (at - RENEW_BEFORE).max(soonest));
                *got = Some(Got { credentials: credentials.clone(), renew_at, expires });
                self.failed = None;
                Ok(credentials)
            }
            (Err(problem), Some(got)) if got.expires.is_none_or(|expires| now < expires) => {
                tracing::warn!(problem, "Credentials not renewed, the old ones stay in use");
                got.renew_at = now + TRY_AGAIN;
                Ok(got.credentials.clone())
            }
            (Err(problem), _) => {
                let problem = format!("no credentials: {problem}");
                self.failed = Some((now, problem.clone()));
                Err(problem)
            }
        }
    }
}
