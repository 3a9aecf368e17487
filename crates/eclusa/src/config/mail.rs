//! Upstreams that take messages, and the lanes that use them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

use eclusa_core::Name;

use super::read::{At, Context, Location, Table};
use super::server::secret_text;
use super::texts::Protocol;
use super::types::{Mode, Secret, SmtpAuth, SmtpRules, SmtpUrl, StartTls, Upstream};

/// Connections of a process to one server, unless the config says otherwise. Many servers allow no more.
const MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(10).unwrap();
/// Keys that only upstreams with SMTP have.
const SMTP_KEYS: [&str; 3] = ["auth", "starttls", "max_connections"];

/// The keys of an upstream that speaks SMTP, besides its address.
pub(super) struct SmtpKeys {
    auth: Option<SmtpAuth>,
    starttls: StartTls,
    max_connections: usize,
}

/// Reads them; all have defaults, so that nothing is wrong where none is there.
pub(super) fn smtp_keys(t: &mut Table<'_>, kind: Protocol) -> SmtpKeys {
    let auth = t.table("auth", "Who sends, for `smtp`. Sent only over TLS, or to this machine.", auth);
    let starttls = t.or(
        "starttls",
        StartTls::Auto,
        "Whether a connection to `smtp://` goes on encrypted: if the server offers it (`auto`), or else nothing is sent \
         (`required`), or never (`off`).",
    );
    let max_connections =
        t.or("max_connections", MAX_CONNECTIONS, "Connections of each process to an `smtp` upstream.");
    if kind != Protocol::Smtp {
        not_for(t, &SMTP_KEYS, kind);
    }
    SmtpKeys { auth: auth.flatten(), starttls, max_connections: max_connections.get() }
}

fn auth(t: &mut Table<'_>) -> Option<SmtpAuth> {
    let user: Option<String> = t.need("user", "\"mailer\"", "The name of the account.");
    let password: Option<Secret> = t.get("password", "Its password; better `${VAR}` than the text.");
    let file = t.file("password_file", "A file that holds the password, instead of `password`.");
    let (at, password) = secret_text(t, ("password", "password_file"), password, file)?;
    let user = user?;
    // PLAIN separates its parts by NUL.
    for (key, text) in [("user", user.as_str()), (at, password.reveal())] {
        if text.is_empty() || text.contains('\0') {
            t.wrong(key, "is empty or holds a NUL", "write it as the server's operator gave it");
            return None;
        }
    }
    Some(SmtpAuth { user, password })
}

/// Notes keys that an upstream of this kind does not have.
pub(super) fn not_for(t: &Table<'_>, keys: &[&str], kind: Protocol) {
    for key in keys.iter().filter(|key| t.has(key)) {
        let problem = format!("has no meaning for an upstream of kind `{}`", kind.as_str());
        t.misplaced(key, &problem, "remove it, or change `kind`");
    }
}

/// The rules of an upstream that speaks SMTP.
pub(super) fn smtp(t: &Table<'_>, url: SmtpUrl, keys: SmtpKeys) -> SmtpRules {
    let SmtpKeys { auth, starttls, max_connections } = keys;
    if url.implicit_tls && t.has("starttls") {
        let problem = "has no meaning with an `smtps://` address, which is encrypted from the start";
        t.misplaced("starttls", problem, "remove it, or write `smtp://`");
    }
    let in_the_clear = !url.implicit_tls && starttls == StartTls::Off;
    if auth.is_some() && in_the_clear && !url.is_loopback() {
        let help = "write `starttls = \"required\"` or an `smtps://` address, or remove `auth`";
        t.misplaced("auth", "would send the password in the clear", help);
    }
    if t.has("tls") && in_the_clear {
        t.misplaced("tls", "is of no use with `starttls = \"off\"`", "remove one of them");
    }
    SmtpRules { url, auth, starttls, max_connections }
}

/// The upstreams that each lane names, to be compared with what those are once they were read.
#[derive(Default)]
pub(super) struct Uses(RefCell<Vec<LaneUse>>);

/// What one lane uses.
pub(super) struct LaneUse {
    pub(super) mode: Mode,
    /// In all its chains, wrong names too.
    pub(super) upstreams: Vec<At<Name>>,
    /// Its `cache`, if it has one.
    pub(super) cache: Option<Location>,
}

impl Uses {
    pub(super) fn note(&self, lane: LaneUse) {
        self.0.borrow_mut().push(lane);
    }

    /// Notes lanes that send both messages and requests, or messages in a way that cannot be.
    pub(super) fn check(&self, ctx: &Context<'_>, upstreams: &BTreeMap<Name, Upstream>) {
        for lane in self.0.borrow().iter() {
            // What could not be read was noted where it stands.
            let known = |name: &At<Name>| upstreams.get(&name.value).map(Upstream::is_mail);
            let Some(mail) = lane.upstreams.iter().find_map(known) else { continue };
            let other = lane.upstreams.iter().find(|name| known(name).is_some_and(|this| this != mail));
            if let Some(other) = other {
                let (this, before) = if mail { ("HTTP", "mail") } else { ("mail", "HTTP") };
                let name = &other.value;
                let problem =
                    format!("mixes mail and HTTP: `{name}` is {this}, those before it are {before}");
                ctx.wrong(&other.place, &problem, "make a lane for each");
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
            let problem = "has no meaning for mail: every message is sent";
            ctx.wrong(cache, problem, "remove it; `id` of a job keeps it from being sent twice");
        }
    }
}
