//! `eclusa status`.

use super::Exit;
use super::client::Client;
use super::output::{Format, or_dash, section, table, typed};
use crate::model::{Need, ServiceStatus};

/// Prints the state of everything in a sentence, and what needs attention.
pub(super) fn run(client: &Client, format: Format) -> Result<(), Exit> {
    let answer = client.get("/v1/status")?;
    format.one(&answer, || {
        let ServiceStatus { remark, also, needs } = typed(&answer)?;
        let also: String = also.into_iter().map(|remark| remark.text + "\n").collect();
        let row = |need: Need| vec![need.severity, or_dash(need.since.as_deref()), need.remark.text];
        let needs = table(&["SEVERITY", "SINCE", "WHAT"], needs.into_iter().map(row).collect());
        Ok(format!("{}\n{also}{}", remark.text, section("Needs attention", &needs)))
    })
}
