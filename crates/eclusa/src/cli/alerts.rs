//! `eclusa alerts`.

use serde_json::Value;

use super::Exit;
use super::client::Client;
use super::output::{Format, or_dash, section, table, typed_all};
use crate::model::Alert;

/// Prints firing and recently resolved alerts.
pub(super) fn run(client: &Client, format: Format) -> Result<(), Exit> {
    let answer = client.get("/v1/alerts")?;
    let list = |key: &str| answer[key].as_array().cloned().unwrap_or_default();
    let (firing, recent) = (list("alerts"), list("recent"));
    format.many(&answer, &firing, || {
        let resolved = rows(&recent, |alert| or_dash(alert.resolved_at.as_deref()))?;
        let firing = rows(&firing, |alert| or_dash(alert.since.as_deref()))?;
        let head = |when| ["ALERT", "SEVERITY", when, "WHAT"];
        let resolved = section("Resolved", &table(&head("AT"), resolved));
        Ok(if firing.is_empty() {
            format!("No alert is firing.\n{resolved}")
        } else {
            table(&head("SINCE"), firing) + &resolved
        })
    })
}

fn rows(alerts: &[Value], when: fn(&Alert) -> String) -> Result<Vec<Vec<String>>, Exit> {
    let row = |alert: Alert| vec![alert.name.clone(), alert.severity.clone(), when(&alert), alert.text];
    Ok(typed_all(alerts)?.into_iter().map(row).collect())
}
