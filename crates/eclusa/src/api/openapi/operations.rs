//! The calls by name, and the errors of each besides those that follow from its shape.

use super::super::problem::Kind;

/// A call.
pub(super) struct Operation {
    /// Its name in generated clients.
    pub(super) id: &'static str,
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// Needs no key.
    pub(super) open: bool,
    pub(super) errors: &'static [Kind],
}

const fn call(
    id: &'static str,
    method: &'static str,
    path: &'static str,
    errors: &'static [Kind],
) -> Operation {
    Operation { id, method, path, open: false, errors }
}

const fn open(
    id: &'static str,
    method: &'static str,
    path: &'static str,
    errors: &'static [Kind],
) -> Operation {
    Operation { id, method, path, open: true, errors }
}

const NONE: &[Kind] = &[];
/// A filter names an unknown lane.
const BY_LANE: &[Kind] = &[Kind::NotFound];
/// Jobs in several lanes have this id.
const BY_ID: &[Kind] = &[Kind::Conflict];
const INTAKE: &[Kind] =
    &[Kind::Conflict, Kind::IdempotencyConflict, Kind::QueueFull, Kind::NotInTime, Kind::Stopping];

pub(super) const OPERATIONS: [Operation; 52] = [
    call("enqueueJob", "post", "/v1/lanes/{lane}/jobs", INTAKE),
    call("enqueueJobs", "post", "/v1/lanes/{lane}/jobs/batch", &[Kind::Conflict, Kind::Stopping]),
    call("searchJobs", "get", "/v1/jobs", BY_LANE),
    call("cancelJobs", "delete", "/v1/jobs", BY_LANE),
    call("getJob", "get", "/v1/jobs/{id}", BY_ID),
    call("cancelJob", "delete", "/v1/jobs/{id}", BY_ID),
    call("waitForJob", "get", "/v1/jobs/{id}/wait", BY_ID),
    call("explainJob", "get", "/v1/jobs/{id}/why", BY_ID),
    call("followJob", "get", "/v1/jobs/{id}/events", &[Kind::Conflict, Kind::TooManyStreams]),
    call("followEverything", "get", "/v1/events", &[Kind::NotFound, Kind::TooManyStreams]),
    call("listLanes", "get", "/v1/lanes", NONE),
    call("getLane", "get", "/v1/lanes/{lane}", NONE),
    call("pauseLane", "post", "/v1/lanes/{lane}/pause", NONE),
    call("resumeLane", "post", "/v1/lanes/{lane}/resume", NONE),
    call("listTenants", "get", "/v1/lanes/{lane}/tenants", NONE),
    call("listUpstreams", "get", "/v1/upstreams", NONE),
    call("getUpstream", "get", "/v1/upstreams/{name}", NONE),
    call("getUpstreamCodes", "get", "/v1/upstreams/{name}/codes", NONE),
    call("listBreakers", "get", "/v1/breakers", NONE),
    call("getBreaker", "get", "/v1/breakers/{name}", NONE),
    call("reportFailure", "post", "/v1/breakers/{name}/failure", NONE),
    call("reportSuccess", "post", "/v1/breakers/{name}/success", NONE),
    call("tryRecover", "post", "/v1/breakers/{name}/try-recover", NONE),
    call("resetBreaker", "post", "/v1/breakers/{name}/reset", NONE),
    call("acquire", "post", "/v1/limits/{upstream}/acquire", &[Kind::QuotaExceeded, Kind::Stopping]),
    call("settleLease", "post", "/v1/limits/leases/{leaseId}/settle", NONE),
    call("extendLease", "post", "/v1/limits/leases/{leaseId}/extend", NONE),
    call("listPolicies", "get", "/v1/policies", NONE),
    call("getPolicy", "get", "/v1/policies/{policy}", NONE),
    call("credit", "post", "/v1/policies/credits", &[Kind::NotFound]),
    call("listDeadLetters", "get", "/v1/dead-letters", BY_LANE),
    call("purgeDeadLetters", "delete", "/v1/dead-letters", BY_LANE),
    call("countDeadLetters", "get", "/v1/dead-letters/stats", BY_LANE),
    call("exportDeadLetters", "get", "/v1/dead-letters/export", BY_LANE),
    call("replayDeadLetters", "post", "/v1/dead-letters/replay", &[Kind::NotFound, Kind::Conflict]),
    call("listReplays", "get", "/v1/dead-letters/replays", NONE),
    call("getReplay", "get", "/v1/dead-letters/replays/{id}", NONE),
    call("stopReplay", "delete", "/v1/dead-letters/replays/{id}", NONE),
    call("getDeadLetter", "get", "/v1/dead-letters/{id}", NONE),
    call("discardDeadLetter", "delete", "/v1/dead-letters/{id}", NONE),
    call("replayDeadLetter", "post", "/v1/dead-letters/{id}/replay", &[Kind::Conflict, Kind::QueueFull]),
    call("listAlerts", "get", "/v1/alerts", NONE),
    call("getStatus", "get", "/v1/status", NONE),
    call("getHistory", "get", "/v1/history", &[Kind::NotFound]),
    call("getHealth", "get", "/v1/health", NONE),
    call("getMetrics", "get", "/metrics", NONE),
    open("isAlive", "get", "/livez", NONE),
    open("isReady", "get", "/readyz", &[Kind::Stopping]),
    open("getSession", "get", "/v1/session", NONE),
    open("signIn", "post", "/v1/session", &[Kind::Unauthorized, Kind::ForeignSite]),
    open("signOut", "delete", "/v1/session", &[Kind::ForeignSite]),
    open("receiveWebhook", "post", "/v1/webhooks/{upstream}/{jobId}", &[Kind::Unauthorized]),
];

pub(super) const PATH: &str = "/proxy/{lane}/{path}";
const PASSED_ON: &[Kind] = &[
    Kind::Conflict,
    Kind::TooLarge,
    Kind::TooSlow,
    Kind::TooManyBodies,
    Kind::IdempotencyConflict,
    Kind::QuotaExceeded,
    Kind::QueueFull,
    Kind::NotInTime,
    Kind::Stopping,
    Kind::JobDropped,
    Kind::UpstreamFailed,
    Kind::UpstreamTimeout,
];

/// The proxy accepts every method that OpenAPI can describe.
pub(super) const PROXY: [Operation; 7] = [
    call("proxyGet", "get", PATH, PASSED_ON),
    call("proxyHead", "head", PATH, PASSED_ON),
    call("proxyOptions", "options", PATH, PASSED_ON),
    call("proxyPost", "post", PATH, PASSED_ON),
    call("proxyPut", "put", PATH, PASSED_ON),
    call("proxyPatch", "patch", PATH, PASSED_ON),
    call("proxyDelete", "delete", PATH, PASSED_ON),
];
