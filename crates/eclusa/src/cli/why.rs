//! `eclusa why`.

use super::Exit;
use super::client::{Client, path};
use super::gates::gates;
use super::output::{Format, fields, section, typed};
use crate::model::WhyAnswer;

/// Prints what a job is waiting for.
pub(super) fn run(id: &str, client: &Client, format: Format) -> Result<(), Exit> {
    let answer = client.get(&path(&["v1", "jobs", id, "why"]))?;
    format.one(&answer, || {
        let why: WhyAnswer = typed(&answer)?;
        let waits = why.reason.is_some();
        let known = fields(&[
            ("status", Some(why.status)),
            ("reason", why.reason),
            ("upstream", why.upstream),
            ("tenant", why.tenant),
            ("policy", why.policy),
            ("scope", why.scope),
            ("until", why.until),
            ("position", waits.then(|| why.position.to_string())),
            ("eta", why.eta),
            ("expires", why.will_expire.then(|| "before it can start".to_owned())),
        ]);
        Ok(format!("{}\n\n{known}{}", why.detail, section("gates", &gates(&why.gates))))
    })
}
