//! Mail upstreams, and the lanes that use them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use eclusa_core::Name;

use super::read::{At, Context, Location, Table};
use super::server::secret_text;
use super::texts::Protocol;
use super::types::{Mode, Secret};
use super::upstream_types::{SmtpAuth, SmtpRules, SmtpUrl, StartTls, UpstreamConfig};

/// The default of `max_connections`. Many servers allow no more.
const MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(10).unwrap();
/// Keys that only SMTP upstreams have.
const SMTP_KEYS: [&str; 3] = ["auth", "starttls", "max_connections"];

/// The keys of an SMTP upstream, besides its URL.
pub(super) struct SmtpKeys {
    auth: Option<SmtpAuth>,
    starttls: StartTls,
    max_connections: usize,
}

/// Reads the SMTP keys; all are optional.
pub(super) fn smtp_keys(t: &mut Table<'_>, kind: Protocol) -> SmtpKeys {
    let auth = t.table("auth", "The SMTP account. Sent only over TLS, or to the local machine.", auth);
    let starttls = t.or(
        "starttls",
        StartTls::Auto,
        "Whether a connection to `smtp://` switches to TLS: if the server offers it (`auto`), always, or nothing is sent \
         (`required`), or never (`off`).",
    );
    let max_connections = t.or(
        "max_connections",
        MAX_CONNECTIONS,
        "The most connections of each process to an `smtp` upstream.",
    );
    if kind != Protocol::Smtp {
        not_for(t, &SMTP_KEYS, kind);
    }
    SmtpKeys { auth: auth.flatten(), starttls, max_connections: max_connections.get() }
}

fn auth(t: &mut Table<'_>) -> Option<SmtpAuth> {
    let user: Option<String> = t.need("user", "\"mailer\"", "The user name.");
    let password: Option<Secret> = t.get("password", "The password; prefer `${VAR}` to the plain text.");
    let file = t.file("password_file", "A file that contains the password, instead of `password`.");
    let (at, password) = secret_text(t, ("password", "password_file"), password, file)?;
    let user = user?;
    // PLAIN separates its parts by NUL.
    for (key, text) in [("user", user.as_str()), (at, password.reveal())] {
        if text.is_empty() || text.contains('\0') {
            t.wrong(key, "is empty or contains a NUL", "write it as your mail provider gave it to you");
            return None;
        }
    }
    Some(SmtpAuth { user, password })
}

/// Notes keys that do not apply to an upstream of this kind.
pub(super) fn not_for(t: &Table<'_>, keys: &[&str], kind: Protocol) {
    for key in keys.iter().filter(|key| t.has(key)) {
        let problem = format!("does not apply to an upstream of kind `{}`", kind.as_str());
        t.misplaced(key, &problem, "remove it, or change `kind`");
    }
}

/// The rules of an SMTP upstream.
pub(super) fn smtp(t: &Table<'_>, url: SmtpUrl, keys: SmtpKeys) -> SmtpRules {
    let SmtpKeys { auth, starttls, max_connections } = keys;
    if url.implicit_tls && t.has("starttls") {
        let problem = "does not apply to an `smtps://` address, which is encrypted from the start";
        t.misplaced("starttls", problem, "remove it, or write `smtp://`");
    }
    let in_the_clear = !url.implicit_tls && starttls == StartTls::Off;
    if auth.is_some() && in_the_clear && !url.is_loopback() {
        let help = "write `starttls = \"required\"` or an `smtps://` address, or remove `auth`";
        t.misplaced("auth", "would send the password unencrypted", help);
    }
    if t.has("tls") && in_the_clear {
        t.misplaced("tls", "has no effect with `starttls = \"off\"`", "remove one of them");
    }
    SmtpRules { url, auth, starttls, max_connections }
}

/// The upstreams that each lane uses, to be checked once all upstreams are read.
#[derive(Default)]
pub(super) struct Uses(RefCell<Vec<LaneUse>>);

/// What one lane uses.
pub(super) struct LaneUse {
    pub(super) mode: Mode,
    /// In all its chains, including unknown names.
    pub(super) upstreams: Vec<At<Name>>,
    /// Where its `cache` is, if it has one.
    pub(super) cache: Option<Location>,
}

impl Uses {
    pub(super) fn note(&self, lane: LaneUse) {
        self.0.borrow_mut().push(lane);
    }

    /// Notes lanes that mix mail and HTTP, or use mail where that is not possible.
    pub(super) fn check(&self, ctx: &Context<'_>, upstreams: &BTreeMap<Name, UpstreamConfig>) {
        for lane in self.0.borrow().iter() {
            // An upstream that could not be read was noted already.
            let known = |name: &At<Name>| upstreams.get(&name.value).map(UpstreamConfig::is_mail);
            let Some(mail) = lane.upstreams.iter().find_map(known) else { continue };
            let other = lane.upstreams.iter().find(|name| known(name).is_some_and(|this| this != mail));
            if let Some(other) = other {
                let (this, before) = if mail { ("HTTP", "mail") } else { ("mail", "HTTP") };
                let name = &other.value;
                let problem =
                    format!("mixes mail and HTTP: `{name}` is {this}, the upstreams before it are {before}");
                ctx.wrong(&other.place, &problem, "use separate lanes");
            } else if mail {
                lane.check_mail(ctx);
            }
        }
    }
}

impl LaneUse {
    fn check_mail(&self, ctx: &Context<'_>) {
        if let (Mode::Direct, Some(first)) = (self.mode, self.upstreams.first()) {
            let problem = "names a mail upstream, which a direct lane cannot use: it passes requests through";
            ctx.wrong(&first.place, problem, "write `mode = \"queue\"`");
        }
        if let Some(cache) = &self.cache {
            let problem = "does not apply to mail: every message is sent";
            ctx.wrong(cache, problem, "remove it; a job's `id` prevents sending it twice");
        }
    }
}
