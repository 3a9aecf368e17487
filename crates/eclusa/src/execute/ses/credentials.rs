//! Credentials of AWS, and where they come from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use eclusa_core::{Span, Time};
use tokio::sync::Mutex;

use super::metadata::Metadata;
use crate::config::{AwsCredentials, CredentialSource, credentials_of_profile};
use crate::execute::CallContext;
use crate::execute::http::TlsError;
use crate::file_stamp::FileStamp;

/// How often a file is checked.
const LOOK_EVERY: Span = Span::from_secs(2);
/// The largest file of credentials: more is a mistake.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// How long before their expiry credentials are renewed.
const RENEW_BEFORE: Span = Span::from_secs(5 * 60);
/// When a failed renewal is tried again while the old credentials are valid.
const TRY_AGAIN: Span = Span::from_secs(30);
/// The same if there are none: calls in between fail at once instead of waiting for another failure.
const TRY_AGAIN_WITHOUT: Span = Span::from_secs(1);

/// Provides the current credentials. Reads the source no more often than needed, and keeps using the old ones while
/// newer ones cannot be read.
pub(super) struct Provider {
    source: Source,
}

enum Source {
    Fixed(Arc<AwsCredentials>),
    File { path: PathBuf, profile: String, read: Mutex<FileRead> },
    Metadata { from: Metadata, state: Mutex<MetadataState> },
}

/// The state of a credentials file.
#[derive(Default)]
struct FileRead {
    credentials: Option<Arc<AwsCredentials>>,
    stamp: Option<FileStamp>,
    looked: Option<Time>,
}

/// The state of a metadata service.
#[derive(Default)]
struct MetadataState {
    got: Option<Got>,
    /// The last failure, and when it happened.
    failed: Option<(Time, String)>,
}

/// Credentials from a metadata service.
struct Got {
    credentials: Arc<AwsCredentials>,
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
    pub(super) async fn get(&self, context: &CallContext<'_>) -> Result<Arc<AwsCredentials>, String> {
        let now = context.clock.now();
        match &self.source {
            Source::Fixed(credentials) => Ok(credentials.clone()),
            Source::File { path, profile, read } => read.lock().await.look(path, profile, now),
            // One caller renews, the others wait; the timeouts of the calls bound how long.
            Source::Metadata { from, state } => state.lock().await.renewed(from, context, now).await,
        }
    }

    /// Notes that AWS refused these credentials. If they are still in use, they are read again for the next call.
    pub(super) async fn refused(&self, used: &Arc<AwsCredentials>) {
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
    fn look(&mut self, path: &Path, profile: &str, now: Time) -> Result<Arc<AwsCredentials>, String> {
        if let (Some(credentials), Some(looked)) = (&self.credentials, self.looked)
            && now.since(looked) < LOOK_EVERY
        {
            return Ok(credentials.clone());
        }
        self.looked = Some(now);
        match (self.read_if_changed(path, profile), &self.credentials) {
            (Ok(()), Some(credentials)) => Ok(credentials.clone()),
            (Err(problem), Some(credentials)) => {
                tracing::warn!(file = %path.display(), problem, "Credentials not read; the old ones stay in use");
                Ok(credentials.clone())
            }
            (Err(problem), None) => Err(format!("no credentials: {} {problem}", path.display())),
            (Ok(()), None) => Err(format!("no credentials in {}", path.display())),
        }
    }

    /// Only a complete, valid profile replaces the current credentials: a file may be read while it is being written.
    fn read_if_changed(&mut self, path: &Path, profile: &str) -> Result<(), String> {
        let about = std::fs::metadata(path).map_err(|error| format!("cannot be read: {error}"))?;
        let stamp = FileStamp::from(&about);
        if self.stamp == Some(stamp) {
            return Ok(());
        }
        if stamp.bytes > MAX_FILE_BYTES {
            return Err("has more than 1 MiB".into());
        }
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
        let read = credentials_of_profile(&text, profile);
        // A fault of the file is logged once, as long as there are credentials to use.
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
    ) -> Result<Arc<AwsCredentials>, String> {
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
                // Credentials that expire soon are used until then, and requested again meanwhile.
                let soonest = now + TRY_AGAIN;
                let renew_at = expires.map_or(now + RENEW_BEFORE, |at| (at - RENEW_BEFORE).max(soonest));
                *got = Some(Got { credentials: credentials.clone(), renew_at, expires });
                self.failed = None;
                Ok(credentials)
            }
            (Err(problem), Some(got)) if got.expires.is_none_or(|expires| now < expires) => {
                tracing::warn!(problem, "Credentials not renewed; the old ones stay in use");
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
