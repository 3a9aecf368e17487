//! `[[upstreams.NAME.policies]]`: limits by scope.

mod texts;

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::sync::Arc;

use eclusa_core::gate::BucketSpec;
use eclusa_core::{CREDIT_WITHIN, Charge, CreditRule, Name, Span, Terms, Tokens};

pub(super) use self::texts::MethodText;
use self::texts::{Cost, HeaderText, HoldText};
pub use self::texts::{PathPattern, PathSegment, Pattern, Presence, ScopeSource};
use super::read::{At, Entries, Table};
use super::types::Field;
use super::units::{Percent, PositiveSpan, RateValue};

/// One token-bucket rule of an upstream.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Unique in the file.
    pub name: Name,
    /// The requests it applies to; all if empty.
    pub matches: Vec<RequestMatch>,
    /// How requests are mapped to buckets.
    pub scope: ScopeSource,
    /// At least one. The first whose pattern matches the scope value applies; a class without a pattern matches all.
    pub classes: Vec<PolicyClass>,
    /// The tokens taken at admission.
    pub hold: HoldRule,
    /// The field that links a later event to the call.
    pub correlation: Option<Field>,
    /// A balance below this percentage of the capacity is reported as low.
    pub alert_below: Option<u8>,
}

/// Capacity, refill and terms of some buckets of a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyClass {
    /// `None` if the policy has no classes.
    pub name: Option<Name>,
    /// Which scope values belong to it.
    pub scope: Option<Pattern>,
    /// Capacity and refill.
    pub bucket: BucketSpec,
    /// The refill as configured: tokens per time.
    pub refill: (u32, Span),
    /// What calls cost, and what events credit.
    pub terms: Arc<Terms>,
}

/// Conditions on a request; all that are set must hold.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestMatch {
    /// The methods; any if empty.
    pub methods: Vec<String>,
    /// The path below the upstream's URL.
    pub path: Option<PathPattern>,
    /// Conditions on variables of the path.
    pub vars: Vec<(String, Pattern)>,
    /// Conditions on query parameters.
    pub query: Vec<(String, Presence)>,
    /// Conditions on headers, by lower-case name.
    pub headers: Vec<(String, Presence)>,
}

/// The tokens taken at admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldRule {
    /// A fixed number.
    Tokens(Tokens),
    /// The number in this field of the request, or one token without it.
    Body(Field),
}

impl Policy {
    /// Whether it reads the bodies of requests.
    pub fn reads_bodies(&self) -> bool {
        let scope = matches!(self.scope, ScopeSource::Field(Field::Body(_)));
        scope || matches!(self.hold, HoldRule::Body(_)) || matches!(self.correlation, Some(Field::Body(_)))
    }
}

/// The policy names that are taken.
#[derive(Default)]
pub(super) struct PolicyNames {
    names: RefCell<Vec<Name>>,
}

/// Reads all policies of one upstream.
pub(super) fn policies(t: &mut Table<'_>, taken: &PolicyNames) -> Vec<Policy> {
    let doc = "A limit by scope: a token bucket for the upstream as a whole, for each tenant, or for each value of a \
               header, a query parameter or a body field. A request needs enough tokens under all policies that match.";
    let correlation = RefCell::new(None);
    t.tables("policies", doc, |t| policy(t, taken, &correlation)).into_iter().flatten().collect()
}

fn policy(t: &mut Table<'_>, taken: &PolicyNames, correlated: &RefCell<Option<Field>>) -> Option<Policy> {
    let name: Option<Name> =
        t.need("name", "\"READS\"", "The name in the API and in metrics; unique in the file.");
    let name = name.filter(|name| unique(t, name, taken));
    let match_doc =
        "Which requests it applies to: one table, or a list of alternatives; all requests if not given.";
    let matches = t.one_or_more("match", match_doc, request_match);
    let scope = t.or(
        "scope",
        ScopeSource::Upstream,
        "What has its own bucket: `upstream`, `tenant`, `header:NAME`, `query:NAME` or `body:/POINTER`. A request that \
         matches but does not have the value is refused with 422.",
    );
    let charge = charge(t);
    let hold = t.or(
        "hold",
        HoldText::Tokens(1),
        "Tokens taken at admission: a number, `worst` (the highest `cost`), or `body:/POINTER` of the request \
         (1 if the request does not have the field).",
    );
    let correlation = correlation(t, correlated);
    let credit: Option<Entries<NonZeroU32>> = t.get(
        "credit",
        "Tokens that an event credits for a call: `{ payment = 1 }`. Classes may override it.",
    );
    let credit = credit.map(events);
    let within =
        t.or("credit_within", PositiveSpan(CREDIT_WITHIN), "How long after the call an event is credited.").0;
    let alert_below: Option<Percent> = t.get(
        "alert_below",
        "Below this share of the capacity, a balance is reported as low and the alert `policy_low` fires.",
    );
    let common = Common { charge: charge.unwrap_or_default(), credit, within };
    let classes = classes(t, &scope, &common)?;
    credit_needs_correlation(t, &classes, correlation.is_some());
    let hold = hold_rule(t, hold, &common.charge, &classes)?;
    let alert_below = alert_below.map(|part| part.0);
    Some(Policy { name: name?, matches, scope, classes, hold, correlation, alert_below })
}

fn unique(t: &Table<'_>, name: &Name, taken: &PolicyNames) -> bool {
    let mut names = taken.names.borrow_mut();
    let new = !names.contains(name);
    if new {
        names.push(name.clone());
    } else {
        t.wrong(
            "name",
            "is also the name of another policy",
            "give each policy in the file a different name",
        );
    }
    new
}

fn request_match(t: &mut Table<'_>) -> RequestMatch {
    let methods: Option<Vec<MethodText>> = t.get("method", "The methods; any if not given.");
    let path: Option<PathPattern> = t.get(
        "path",
        "The path below the upstream's `url`, with `{NAME}` for any one segment: `/entries/{key}`. A trailing slash is ignored.",
    );
    let vars: Option<Entries<Pattern>> = t.get("vars", "Regular expressions for the variables of `path`.");
    let query: Option<Entries<Presence>> = t.get(
        "query",
        "Query parameters: a regular expression for the value, `true` if it must be present, `false` if it must be absent.",
    );
    let headers: Option<Entries<Presence>> = t.get("headers", "Headers, in the same way.");
    let vars: Vec<_> = vars.into_iter().flat_map(Entries::valid).collect();
    for (var, _) in &vars {
        let known = path.as_ref().is_none_or(|path| path.has(&var.value));
        if !known || !t.has("path") {
            let help = "write it as `{NAME}` in `path`, or remove it";
            t.context().wrong(&var.place, "is not a variable of `path`", help);
        }
    }
    let headers = headers.into_iter().flat_map(Entries::all).filter_map(|(name, presence)| {
        let header = HeaderText::parse(&name.value);
        if header.is_none() {
            t.context().wrong(&name.place, "is not the name of a header", "use letters, digits and `-`");
        }
        Some((header?, presence?))
    });
    RequestMatch {
        methods: methods.into_iter().flatten().map(|method| method.0).collect(),
        headers: headers.collect(),
        path,
        vars: vars.into_iter().map(|(var, pattern)| (var.value, pattern)).collect(),
        query: query.into_iter().flat_map(Entries::valid).map(|(name, value)| (name.value, value)).collect(),
    }
}

fn charge(t: &mut Table<'_>) -> Option<Charge> {
    let costs: Option<Entries<At<Cost>>> = t.get(
        "cost",
        "What a response costs, by status: `{ \"200\" = 1, \"404\" = 20, \"5xx\" = 0, default = 1 }`; an exact \
         status takes precedence over its class. With `from = \"body:/POINTER\"`, the cost is read from the response body; in an \
         event stream, from the last event that has the field. If no cost applies, the cost is what was held.",
    );
    let mut charge = Charge::default();
    for (key, cost) in costs?.valid() {
        let made = match (key.value.as_str(), &cost.value) {
            ("from", Cost::Source(source)) => charge.clone().from_usage(source),
            ("from", Cost::Tokens(_)) => {
                let help = "write `from = \"body:/usage/total_tokens\"`";
                t.context().wrong(&cost.place, "must be a field of the response body", help);
                continue;
            }
            (_, Cost::Source(_)) => {
                t.context().wrong(&cost.place, "must be a number of tokens", "only `from` names a field");
                continue;
            }
            (status, Cost::Tokens(tokens)) => charge.clone().on(status, Tokens::whole(*tokens)),
        };
        if let Ok(made) = made {
            charge = made;
        } else {
            let help = "write a status (\"404\"), a class of them (\"5xx\"), `default` or `from`";
            t.context().wrong(&key.place, "is not a status", help);
        }
    }
    Some(charge)
}

/// Reads where the correlation id is. A call has only one, so all policies of an upstream use the same field.
fn correlation(t: &mut Table<'_>, correlated: &RefCell<Option<Field>>) -> Option<Field> {
    let field: Option<Field> = t.get(
        "correlation",
        "The field of a request that links a later event to it, for credits: `header:PI-EndToEndId`.",
    );
    let field = field?;
    if matches!(field, Field::Params(_)) {
        let help = "use `header.NAME`, `query.NAME` or `body./POINTER` of the request";
        t.wrong("correlation", "names a field of `params`, which is not sent to the upstream", help);
    }
    let mut first = correlated.borrow_mut();
    if first.get_or_insert_with(|| field.clone()) != &field {
        let help = "use the same field in all policies of this upstream";
        t.wrong("correlation", "differs from another policy's", help);
    }
    Some(field)
}

type Events = Vec<(String, u32)>;

fn events(entries: Entries<NonZeroU32>) -> Events {
    entries.valid().map(|(event, tokens)| (event.value, tokens.get())).collect()
}

/// What classes inherit from their policy.
struct Common {
    charge: Charge,
    credit: Option<Events>,
    within: Span,
}

impl Common {
    fn class(
        &self,
        t: &Table<'_>,
        (name, scope): (Option<Name>, Option<Pattern>),
        (capacity, refill): (NonZeroU32, RateValue),
        own: Option<&Events>,
    ) -> Option<PolicyClass> {
        let bucket = t.rule(BucketSpec::new(capacity.get(), refill.count, refill.per))?;
        let events = own.or(self.credit.as_ref()).filter(|events| !events.is_empty());
        let credit = match events {
            Some(events) => {
                let events: Vec<_> =
                    events.iter().map(|(event, tokens)| (event.as_str(), Tokens::whole(*tokens))).collect();
                Some(t.rule(CreditRule::new(&events, self.within))?)
            }
            None => None,
        };
        let terms = Arc::new(Terms { charge: self.charge.clone(), credit });
        Some(PolicyClass { name, scope, bucket, refill: (refill.count, refill.per), terms })
    }
}

const CAPACITY: &str = "The most tokens in a bucket.";
const REFILL: &str = "The refill rate: `2/min`, `40/day`.";

/// Reads the classes; the policy's own capacity and refill are a class without a name.
fn classes(t: &mut Table<'_>, scope: &ScopeSource, common: &Common) -> Option<Vec<PolicyClass>> {
    let capacity: Option<NonZeroU32> = t.get("capacity", CAPACITY);
    let refill: Option<RateValue> = t.get("refill", REFILL);
    let picked: Option<At<Name>> =
        t.get("class", "The name of the class for all requests: `\"${DICT_CATEGORY:-H}\"`.");
    let doc = "Capacities by scope value, or alternatives to select with `class`.";
    let classes = t.tables("classes", doc, |t| class(t, common));
    if !t.has("classes") {
        for key in ["capacity", "refill"].into_iter().filter(|key| !t.has(key)) {
            t.wrong(key, "is missing", &format!("add it, or `classes`; such as `{}`", example(key)));
        }
        if t.has("class") {
            t.misplaced("class", "needs `classes`", "add `classes = [{ name = …, … }]`");
        }
        return common.class(t, (None, None), (capacity?, refill?), None).map(|class| vec![class]);
    }
    for key in ["capacity", "refill"].into_iter().filter(|key| t.has(key)) {
        t.misplaced(key, "cannot be used with `classes`", "write it in each class");
    }
    let all = classes.len();
    let mut classes: Vec<PolicyClass> = classes.into_iter().flatten().collect();
    if classes.len() < all {
        return None;
    }
    if classes.is_empty() {
        t.wrong("classes", "is empty", "add a class, or remove it and write `capacity` and `refill`");
        return None;
    }
    for (at, class) in classes.iter().enumerate() {
        if classes[..at].iter().any(|before| before.name == class.name) {
            t.wrong("classes", "has two classes with the same name", "give each class a different name");
        }
    }
    match picked {
        Some(picked) => {
            let known: Vec<String> =
                classes.iter().filter_map(|class| Some(class.name.as_ref()?.to_string())).collect();
            classes.retain(|class| class.name.as_ref() == Some(&picked.value));
            classes.iter_mut().for_each(|class| class.scope = None);
            if classes.is_empty() {
                let help = format!("`classes` has `{}`", known.join("`, `"));
                t.context().wrong(&picked.place, "is not one of the classes", &help);
                return None;
            }
        }
        None if t.has("class") => return None,
        None => check_patterns(t, scope, &classes),
    }
    Some(classes)
}

fn example(key: &str) -> &'static str {
    if key == "capacity" { "capacity = 100" } else { "refill = \"2/min\"" }
}

/// Without `class`, each class needs a pattern for its scope values; only the last may match all others.
fn check_patterns(t: &Table<'_>, scope: &ScopeSource, classes: &[PolicyClass]) {
    if *scope == ScopeSource::Upstream {
        let help = "add `class = \"NAME\"`, or a `scope` with different values";
        t.wrong("classes", "cannot be told apart: with scope `upstream` there is only one bucket", help);
    } else if classes.iter().rev().skip(1).any(|class| class.scope.is_none()) {
        let help = "add `scope = '^…$'`, or `class = \"NAME\"`";
        t.wrong("classes", "has a class without `scope` before the last one", help);
    }
}

fn class(t: &mut Table<'_>, common: &Common) -> Option<PolicyClass> {
    let name: Option<Name> = t.need("name", "\"PF\"", "The name in the API.");
    let scope: Option<Pattern> =
        t.get("scope", "Which scope values belong to it, as a regular expression; all others if not given.");
    let capacity: Option<NonZeroU32> = t.need("capacity", "100", CAPACITY);
    let refill: Option<RateValue> = t.need("refill", "\"2/min\"", REFILL);
    let credit: Option<Entries<NonZeroU32>> =
        t.get("credit", "Tokens that an event credits, instead of the policy's `credit`.");
    let (wrong_scope, wrong_credit) =
        (t.has("scope") && scope.is_none(), t.has("credit") && credit.is_none());
    let class = common.class(t, (Some(name?), scope), (capacity?, refill?), credit.map(events).as_ref());
    class.filter(|_| !wrong_scope && !wrong_credit)
}

fn credit_needs_correlation(t: &Table<'_>, classes: &[PolicyClass], correlated: bool) {
    let credited = classes.iter().any(|class| class.terms.credit.is_some());
    if credited && !correlated && !t.has("correlation") {
        let key = if t.has("credit") { "credit" } else { "classes" };
        let help = "add `correlation = \"header:NAME\"`: it links the event to the call";
        t.wrong(key, "needs `correlation`", help);
    }
    for key in ["correlation", "credit_within"].into_iter().filter(|key| !credited && t.has(key)) {
        t.misplaced(key, "has no effect without `credit`", "add `credit = { EVENT = 1 }`, or remove it");
    }
}

fn hold_rule(t: &Table<'_>, hold: HoldText, charge: &Charge, classes: &[PolicyClass]) -> Option<HoldRule> {
    let tokens = match hold {
        HoldText::Body(field) => return Some(HoldRule::Body(field)),
        HoldText::Tokens(tokens) => Tokens::whole(tokens),
        HoldText::Worst => {
            let worst = charge.worst().filter(|worst| *worst > Tokens::ZERO);
            if worst.is_none() {
                let help = "add `cost = { \"200\" = 1, … }`, or write a number";
                t.wrong("hold", "is `worst`, but `cost` has no number above zero", help);
            }
            worst?
        }
    };
    for class in classes.iter().filter(|class| class.bucket.check_hold(tokens).is_err()) {
        let of = class.name.as_ref().map_or(String::new(), |name| format!(" of class `{name}`"));
        let problem = format!("is more than the capacity{of}, so no call could ever be admitted");
        t.wrong("hold", &problem, "write a smaller `hold`, or a larger `capacity`");
    }
    Some(HoldRule::Tokens(tokens))
}
