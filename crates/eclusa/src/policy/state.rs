//! Balances as an upstream reports them.

use eclusa_core::{Span, Tokens};
use quick_xml::Reader;
use quick_xml::events::Event;
use serde::Deserialize;
use serde_json::Value;

use super::usage::amount;
use crate::config::{PolicyClass, StateFormat};

/// The root elements in XML: of the list of all balances, and of one balance.
const ROOTS: [&str; 2] = ["ListPoliciesResponse", "GetPolicyResponse"];
const POLICY: &str = "Policy";

/// One balance as the upstream counts it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReportedBalance {
    /// The name of the policy.
    pub(crate) name: String,
    /// The available tokens; negative if there is a debt.
    pub(crate) available: Tokens,
    /// Capacity, refill tokens and refill period in seconds, if they are reported.
    pub(crate) numbers: Option<[u64; 3]>,
}

impl ReportedBalance {
    /// Whether capacity and refill equal those of the config.
    pub(crate) fn agrees_with(&self, class: &PolicyClass) -> bool {
        let Some([capacity, tokens, seconds]) = self.numbers else { return true };
        let (own, per) = class.refill;
        let whole = class.bucket.capacity().as_micro() / Tokens::ONE.as_micro();
        u64::try_from(whole) == Ok(capacity)
            && u128::from(tokens) * u128::from(per.as_millis())
                == u128::from(own) * u128::from(Span::from_secs(seconds).as_millis())
    }
}

/// The balances in an answer that cover the whole upstream, or what is wrong with the answer.
pub(crate) fn read_state(format: StateFormat, body: &[u8]) -> Result<Vec<ReportedBalance>, String> {
    match format {
        StateFormat::DictXml => from_xml(body),
        StateFormat::Json => from_json(body),
    }
}

#[derive(Deserialize)]
struct List {
    policies: Vec<Listed>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    name: String,
    available_tokens: Value,
    capacity: Option<u64>,
    refill_tokens: Option<u64>,
    refill_period_sec: Option<u64>,
    scope: Option<String>,
}

fn from_json(body: &[u8]) -> Result<Vec<ReportedBalance>, String> {
    let list: List = serde_json::from_slice(body).map_err(|error| {
        // The library's error text may quote the answer.
        let (line, column) = (error.line(), error.column());
        format!("is not a list of policies in JSON (line {line}, column {column})")
    })?;
    let shared = list.policies.into_iter().filter(|one| one.scope.as_deref().is_none_or(|s| s == "upstream"));
    let balance = |one: Listed| {
        let available =
            amount(&one.available_tokens).ok_or("has an `availableTokens` that is not a number")?;
        let numbers = one.capacity.zip(one.refill_tokens).zip(one.refill_period_sec);
        let numbers = numbers.map(|((capacity, tokens), seconds)| [capacity, tokens, seconds]);
        Ok(ReportedBalance { name: one.name, available, numbers })
    };
    shared.map(balance).collect()
}

fn from_xml(body: &[u8]) -> Result<Vec<ReportedBalance>, String> {
    let text = std::str::from_utf8(body).map_err(|_| "is not XML in UTF-8")?;
    let mut reader = Reader::from_str(text);
    let (mut path, mut balances, mut members) = (Vec::new(), Vec::new(), PolicyFields::default());
    loop {
        let event = reader.read_event();
        let event = event.map_err(|_| format!("is not XML (at byte {})", reader.error_position()))?;
        match event {
            Event::Start(tag) => {
                path.push(tag.local_name().as_ref().to_owned());
                if path.len() == 1 && !ROOTS.contains(&path[0].as_str()) {
                    return Err(format!("is not a `{}`", ROOTS[0]));
                }
                if path.last().is_some_and(|name| name == POLICY) {
                    members = PolicyFields::default();
                }
            }
            Event::Text(text) if path.len() > 2 && path[path.len() - 2] == POLICY => {
                members.add(&path[path.len() - 1], &text.xml10_content())?;
            }
            Event::End(_) => {
                let ended = path.pop();
                if ended.is_some_and(|name| name == POLICY) {
                    balances.push(std::mem::take(&mut members).balance()?);
                }
            }
            Event::Eof if path.is_empty() && !balances.is_empty() => return Ok(balances),
            Event::Eof => return Err("has no policy, or is cut off".to_owned()),
            _ => {}
        }
    }
}

/// The fields of a `Policy` element.
#[derive(Default)]
struct PolicyFields {
    name: Option<String>,
    available: Option<i64>,
    numbers: [Option<u64>; 3],
}

impl PolicyFields {
    fn add(&mut self, member: &str, text: &str) -> Result<(), String> {
        let text = text.trim();
        let wrong = || format!("has a `{member}` that is not a number");
        let number = || text.parse().map(Some).map_err(|_| wrong());
        match member {
            "Name" => self.name = Some(text.to_owned()),
            "AvailableTokens" => self.available = Some(text.parse().map_err(|_| wrong())?),
            "Capacity" => self.numbers[0] = number()?,
            "RefillTokens" => self.numbers[1] = number()?,
            "RefillPeriodSec" => self.numbers[2] = number()?,
            _ => {}
        }
        Ok(())
    }

    fn balance(self) -> Result<ReportedBalance, String> {
        let (Some(name), Some(available)) = (self.name, self.available) else {
            return Err("has a policy without `Name` or `AvailableTokens`".to_owned());
        };
        let available = Tokens::from_micro(available.saturating_mul(Tokens::ONE.as_micro()));
        let [capacity, tokens, seconds] = self.numbers;
        let numbers = capacity.zip(tokens).zip(seconds);
        let numbers = numbers.map(|((capacity, tokens), seconds)| [capacity, tokens, seconds]);
        Ok(ReportedBalance { name, available, numbers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn balance(name: &str, available: i64, numbers: Option<[u64; 3]>) -> ReportedBalance {
        ReportedBalance {
            name: name.to_owned(),
            available: Tokens::from_micro(available * 1_000_000),
            numbers,
        }
    }

    /// As in the specification, plus a signature and a namespace, which answers may have.
    #[test]
    fn balances_are_read_from_the_xml_of_the_dict() {
        let xml = br#"<?xml version="1.0" encoding="UTF-8" ?>
<d:ListPoliciesResponse xmlns:d="urn:x">
    <Signature xmlns="http://www.w3.org/2000/09/xmldsig#"><SignedInfo><Name>X</Name></SignedInfo></Signature>
    <CorrelationId>B20220902101925801123456781A6998</CorrelationId>
    <Category>A</Category>
    <d:Policies>
        <!-- one -->
        <d:Policy>
            <d:AvailableTokens>-3</d:AvailableTokens>
            <d:Capacity>50000</d:Capacity>
            <d:RefillTokens>25000</d:RefillTokens>
            <d:RefillPeriodSec>60</d:RefillPeriodSec>
            <d:Name>ENTRIES_READ_PARTICIPANT_ANTISCAN</d:Name>
        </d:Policy>
        <Policy><Name>KEYS_CHECK</Name><AvailableTokens>70</AvailableTokens></Policy>
    </d:Policies>
</d:ListPoliciesResponse>"#;
        let expected = [
            balance("ENTRIES_READ_PARTICIPANT_ANTISCAN", -3, Some([50_000, 25_000, 60])),
            balance("KEYS_CHECK", 70, None),
        ];
        assert_eq!(read_state(StateFormat::DictXml, xml).unwrap(), expected);
        let one =
            b"<GetPolicyResponse><Policy><AvailableTokens>0</AvailableTokens><Name>A</Name></Policy></GetPolicyResponse>";
        assert_eq!(read_state(StateFormat::DictXml, one).unwrap(), [balance("A", 0, None)]);
    }

    #[test]
    fn balances_are_read_from_the_json_of_eclusa() {
        let json = br#"{"policies":[
            {"name":"A","upstream":"u","availableTokens":7,"capacity":10,"refillTokens":2,"refillPeriodSec":60,"scope":"upstream","class":null},
            {"name":"B","availableTokens":7.5},
            {"name":"USER","availableTokens":1,"scope":"18d4956485ad7666b6a267f418061e86"}],"cursor":7}"#;
        let half = ReportedBalance { available: Tokens::from_micro(7_500_000), ..balance("B", 0, None) };
        assert_eq!(read_state(StateFormat::Json, json).unwrap(), [balance("A", 7, Some([10, 2, 60])), half]);
    }

    #[test]
    fn anything_but_a_list_of_balances_is_refused_and_not_quoted() {
        let policy = |inner: &str| {
            format!(
                "<ListPoliciesResponse><Policies><Policy>{inner}</Policy></Policies></ListPoliciesResponse>"
            )
        };
        for wrong in [
            String::new(),
            "secret".to_owned(),
            "<html>secret</html>".to_owned(),
            "<ListPoliciesResponse></ListPoliciesResponse>".to_owned(),
            policy("<Name>secret</Name>"),
            policy("<Name>A</Name><AvailableTokens>secret</AvailableTokens>"),
            policy("<Name>A</Name><AvailableTokens>1</AvailableTokens><Capacity>secret</Capacity>"),
            policy("<Name>A</Name><AvailableTokens>1</AvailableTokens>").replace("</Policies>", "</secret>"),
            policy("<Name>A</Name><AvailableTokens>1</AvailableTokens>")
                .replace("</ListPoliciesResponse>", ""),
        ] {
            let said = read_state(StateFormat::DictXml, wrong.as_bytes()).unwrap_err();
            assert!(!said.is_empty() && !said.contains("secret"), "{said}");
        }
        for wrong in [
            "",
            "secret",
            "{}",
            r#"{"policies":[{"name":"secret"}]}"#,
            r#"{"policies":[{"name":"A","availableTokens":"secret"}]}"#,
        ] {
            let said = read_state(StateFormat::Json, wrong.as_bytes()).unwrap_err();
            assert!(!said.is_empty() && !said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn numbers_that_differ_from_the_config_are_noticed() {
        let class = PolicyClass {
            name: None,
            scope: None,
            bucket: eclusa_core::gate::BucketSpec::new(200, 40, Span::from_secs(86_400)).unwrap(),
            refill: (40, Span::from_secs(86_400)),
            terms: std::sync::Arc::default(),
        };
        for (numbers, agrees) in [
            (None, true),
            (Some([200, 40, 86_400]), true),
            (Some([200, 20, 43_200]), true),
            (Some([100, 40, 86_400]), false),
            (Some([200, 40, 60]), false),
        ] {
            assert_eq!(balance("A", 1, numbers).agrees_with(&class), agrees, "{numbers:?}");
        }
    }
}
