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
    /// It applies to what fits one of these; to everything if there are none.
    pub matches: Vec<RequestMatch>,
    /// Whose bucket a request takes from.
    pub scope: ScopeSource,
    /// At least one. The first whose pattern fits the scope value counts; one without a pattern fits all.
    pub classes: Vec<PolicyClass>,
    /// What is taken at admission.
    pub hold: HoldRule,
    /// What ties a later event to the call.
    pub correlation: Option<Field>,
    /// Below this part of its capacity, in percent, a balance is worth a warning.
    pub alert_below: Option<u8>,
}

/// Capacity, refill and terms of some buckets of a policy.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyClass {
    /// `None` where the policy has no classes.
    pub name: Option<Name>,
    /// Which scope values belong to it.
    pub scope: Option<Pattern>,
    /// Capacity and refill.
    pub bucket: BucketSpec,
    /// As it was written: so many tokens per so long.
    pub refill: (u32, Span),
    /// What calls cost, and what earns it back.
    pub terms: Arc<Terms>,
}

/// What a request must be like; what is absent does not narrow.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RequestMatch {
    /// One of these methods; any if there are none.
    pub methods: Vec<String>,
    /// Below the upstream's address.
    pub path: Option<PathPattern>,
    /// Variables of the path and what they must look like.
    pub vars: Vec<(String, Pattern)>,
    /// Parameters of the query.
    pub query: Vec<(String, Presence)>,
    /// Headers, in lower case.
    pub headers: Vec<(String, Presence)>,
}

/// What is taken at admission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldRule {
    /// Always so much.
    Tokens(Tokens),
    /// What the request says there; one token where it says nothing.
    Body(Field),
}

impl Policy {
    /// Whether it reads the bodies of requests.
    pub fn reads_bodies(&self) -> bool {
        let scope = matches!(self.scope, ScopeSource::Field(Field::Body(_)));
        scope || matches!(self.hold, HoldRule::Body(_)) || matches!(self.correlation, Some(Field::Body(_)))
    }
}

/// What policies must not repeat.
#[derive(Default)]
pub(super) struct PolicyNames {
    names: RefCell<Vec<Name>>,
}

/// All policies of one upstream.
pub(super) fn policies(t: &mut Table<'_>, taken: &PolicyNames) -> Vec<Policy> {
    let doc = "A limit by scope: a token bucket for the upstream as a whole, for each tenant, or for each value of a \
               header, a query parameter or a body field. A request needs enough tokens under all policies that match.";
    let correlation = RefCell::new(None);
    t.tables("policies", doc, |t| policy(t, taken, &correlation)).into_iter().flatten().collect()
}

fn policy(t: &mut Table<'_>, taken: &PolicyNames, correlated: &RefCell<Option<Field>>) -> Option<Policy> {
    let name: Option<Name> =
        t.need("name", "\"READS\"", "What it is called in the API and in metrics; unique in the file.");
    let name = name.filter(|name| unique(t, name, taken));
    let match_doc =
        "Which requests it applies to: one table, or a list of which one must fit; all if not given.";
    let matches = t.one_or_more("match", match_doc, request_match);
    let scope = t.or(
        "scope",
        ScopeSource::Upstream,
        "Whose bucket it is: `upstream`, `tenant`, `header:NAME`, `query:NAME` or `body:/POINTER`. A request that \
         matches and does not have the value is refused with 422.",
    );
    let charge = charge(t);
    let hold = t.or(
        "hold",
        HoldText::Tokens(1),
        "Tokens taken at admission: a number, `worst` (the dearest of `cost`), or `body:/POINTER` of the request, \
         where what says nothing takes 1.",
    );
    let correlation = correlation(t, correlated);
    let credit: Option<Entries<NonZeroU32>> = t.get(
        "credit",
        "Tokens that an event gives back for a call: `{ payment = 1 }`. Classes may have their own.",
    );
    let credit = credit.map(events);
    let within =
        t.or("credit_within", PositiveSpan(CREDIT_WITHIN), "How long after its call an event counts.").0;
    let alert_below: Option<Percent> = t.get(
        "alert_below",
        "Below this part of the capacity a balance is counted as low, and the alert `policy_low` fires.",
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
        t.wrong("name", "is the name of another policy too", "each policy of the file has a name of its own");
    }
    new
}

fn request_match(t: &mut Table<'_>) -> RequestMatch {
    let methods: Option<Vec<MethodText>> = t.get("method", "One of these methods; any if not given.");
    let path: Option<PathPattern> = t.get(
        "path",
        "Below the upstream's address, with `{NAME}` for any one part: `/entries/{key}`. Slashes at the end do not count.",
    );
    let vars: Option<Entries<Pattern>> =
        t.get("vars", "What parts named in `path` must look like, as regular expressions.");
    let query: Option<Entries<Presence>> = t.get(
        "query",
        "Query parameters: a regular expression for the value, `true` if it must be there, `false` if it must not.",
    );
    let headers: Option<Entries<Presence>> = t.get("headers", "Headers, in the same way.");
    let vars: Vec<_> = vars.into_iter().flat_map(Entries::valid).collect();
    for (var, _) in &vars {
        let known = path.as_ref().is_none_or(|path| path.has(&var.value));
        if !known || !t.has("path") {
            let help = "write it as `{NAME}` in `path`, or remove it";
            t.context().wrong(&var.place, "is no variable of `path`", help);
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
        "What an answer costs by its status: `{ \"200\" = 1, \"404\" = 20, \"5xx\" = 0, default = 1 }`; the exact \
         status counts before its class. With `from = \"body:/POINTER\"` an answer costs what it says there, in an \
         event stream what the last event with the pointer says. Without a cost that fits, it is what was held.",
    );
    let mut charge = Charge::default();
    for (key, cost) in costs?.valid() {
        let made = match (key.value.as_str(), &cost.value) {
            ("from", Cost::Source(source)) => charge.clone().from_usage(source),
            ("from", Cost::Tokens(_)) => {
                let help = "write `from = \"body:/usage/total_tokens\"`";
                t.context().wrong(&cost.place, "must be a place in the answer's body", help);
                continue;
            }
            (_, Cost::Source(_)) => {
                t.context().wrong(&cost.place, "must be a number of tokens", "only `from` names a place");
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

/// Where the correlation id is. A call has one, so all policies of an upstream take it from the same place.
fn correlation(t: &mut Table<'_>, correlated: &RefCell<Option<Field>>) -> Option<Field> {
    let field: Option<Field> = t.get(
        "correlation",
        "Where a request says what ties a later event to it, so that it can earn a credit: `header:PI-EndToEndId`.",
    );
    let field = field?;
    if matches!(field, Field::Params(_)) {
        let help = "use `header.NAME`, `query.NAME` or `body./POINTER` of what the upstream is sent";
        t.wrong("correlation", "names a field of `params`, which the upstream is not sent", help);
    }
    let mut first = correlated.borrow_mut();
    if first.get_or_insert_with(|| field.clone()) != &field {
        let help = "name the same place in all policies of this upstream";
        t.wrong("correlation", "differs from that of another policy", help);
    }
    Some(field)
}

type Events = Vec<(String, u32)>;

fn events(entries: Entries<NonZeroU32>) -> Events {
    entries.valid().map(|(event, tokens)| (event.value, tokens.get())).collect()
}

/// What classes share unless they say otherwise.
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

const CAPACITY: &str = "Tokens that a bucket holds when full.";
const REFILL: &str = "Tokens that it gains: `2/min`, `40/day`.";

/// The classes to choose from; the policy's own capacity and refill are one without a name.
fn classes(t: &mut Table<'_>, scope: &ScopeSource, common: &Common) -> Option<Vec<PolicyClass>> {
    let capacity: Option<NonZeroU32> = t.get("capacity", CAPACITY);
    let refill: Option<RateValue> = t.get("refill", REFILL);
    let picked: Option<At<Name>> =
        t.get("class", "The class of all requests, by its name: `\"${DICT_CATEGORY:-H}\"`.");
    let doc = "Other capacities for other scope values, or to choose from with `class`.";
    let classes = t.tables("classes", doc, |t| class(t, common));
    if !t.has("classes") {
        for key in ["capacity", "refill"].into_iter().filter(|key| !t.has(key)) {
            t.wrong(key, "is missing", &format!("add it, or `classes`; such as `{}`", example(key)));
        }
        if t.has("class") {
            t.misplaced("class", "needs `classes` to choose from", "add `classes = [{ name = …, … }]`");
        }
        return common.class(t, (None, None), (capacity?, refill?), None).map(|class| vec![class]);
    }
    for key in ["capacity", "refill"].into_iter().filter(|key| t.has(key)) {
        t.misplaced(key, "has no meaning beside `classes`", "write it in each class");
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
            t.wrong("classes", "has two classes of the same name", "give each class a name of its own");
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
                t.context().wrong(&picked.place, "is none of the classes", &help);
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

/// Without `class` each class says by a pattern whom it is for; the last may be for all others.
fn check_patterns(t: &Table<'_>, scope: &ScopeSource, classes: &[PolicyClass]) {
    if *scope == ScopeSource::Upstream {
        let help = "add `class = \"NAME\"`, or a `scope` with values to tell them apart";
        t.wrong("classes", "cannot be told apart: the upstream as a whole has one bucket", help);
    } else if classes.iter().rev().skip(1).any(|class| class.scope.is_none()) {
        let help = "add `scope = '^…$'`, or `class = \"NAME\"` beside `classes`";
        t.wrong("classes", "has a class before the last that is for all values", help);
    }
}

fn class(t: &mut Table<'_>, common: &Common) -> Option<PolicyClass> {
    let name: Option<Name> = t.need("name", "\"PF\"", "What it is called in the API.");
    let scope: Option<Pattern> =
        t.get("scope", "Which scope values belong to it, as a regular expression; all others if not given.");
    let capacity: Option<NonZeroU32> = t.need("capacity", "100", CAPACITY);
    let refill: Option<RateValue> = t.need("refill", "\"2/min\"", REFILL);
    let credit: Option<Entries<NonZeroU32>> =
        t.get("credit", "Tokens that an event gives back, in place of the policy's `credit`.");
    let (wrong_scope, wrong_credit) =
        (t.has("scope") && scope.is_none(), t.has("credit") && credit.is_none());
    let class = common.class(t, (Some(name?), scope), (capacity?, refill?), credit.map(events).as_ref());
    class.filter(|_| !wrong_scope && !wrong_credit)
}

fn credit_needs_correlation(t: &Table<'_>, classes: &[PolicyClass], correlated: bool) {
    let credited = classes.iter().any(|class| class.terms.credit.is_some());
    if credited && !correlated && !t.has("correlation") {
        let key = if t.has("credit") { "credit" } else { "classes" };
        let help = "add `correlation = \"header:NAME\"`: it ties the event to the call";
        t.wrong(key, "gives credit, which needs `correlation`", help);
    }
    for key in ["correlation", "credit_within"].into_iter().filter(|key| !credited && t.has(key)) {
        t.misplaced(key, "has no meaning without `credit`", "add `credit = { EVENT = 1 }`, or remove it");
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
                t.wrong("hold", "is the dearest of `cost`, which names no number above zero", help);
            }
            worst?
        }
    };
    for class in classes.iter().filter(|class| class.bucket.check_hold(tokens).is_err()) {
        let of = class.name.as_ref().map_or(String::new(), |name| format!(" of class `{name}`"));
        let problem = format!("is more than the capacity{of}, so that it could never be taken");
        t.wrong("hold", &problem, "write a smaller `hold`, or a larger `capacity`");
    }
    Some(HoldRule::Tokens(tokens))
}
