"""The API's own types, by their names in its OpenAPI document. A test compares them with that document."""

from __future__ import annotations

from typing import Any, Dict, List, Literal, Optional, TypedDict, Union

JobStatus = Literal["pending", "queued", "processing", "completed", "failed", "dropped", "cancelled"]
Priority = Literal["high", "normal", "low"]


class HttpRequest(TypedDict, total=False):
    method: Optional[str]
    path: str
    query: Any
    headers: Dict[str, str]
    body: Any


class MessageAttachment(TypedDict, total=False):
    filename: str
    contentType: Optional[str]
    content: str
    contentId: Optional[str]


# `from` cannot be the name of an attribute.
Message = TypedDict(
    "Message",
    {
        "from": str,
        "to": Union[str, List[str]],
        "cc": Union[str, List[str]],
        "bcc": Union[str, List[str]],
        "replyTo": Union[str, List[str]],
        "subject": str,
        "text": Optional[str],
        "html": Optional[str],
        "headers": Dict[str, str],
        "attachments": List[MessageAttachment],
    },
    total=False,
)


class JobRequest(TypedDict, total=False):
    id: Optional[str]
    tenant: Optional[str]
    priority: Optional[Priority]
    type: Optional[str]
    delay: Optional[str]
    ttl: Optional[str]
    request: Optional[HttpRequest]
    message: Optional[Message]
    params: Any
    callbackUrl: Optional[str]


class _Accepted(TypedDict):
    jobId: str
    status: JobStatus
    lane: str


class Accepted(_Accepted, total=False):
    position: Optional[int]
    eta: Optional[str]
    expiresAt: Optional[str]


class LastFailure(TypedDict):
    reason: str
    code: Optional[str]
    at: Optional[str]
    upstream: Optional[str]


class JobResult(TypedDict):
    status: int
    headers: Dict[str, List[str]]
    body: Any


class CachedAnswer(TypedDict):
    status: str
    lane: str
    reason: str
    result: JobResult


class ShownRequest(TypedDict, total=False):
    method: str
    path: str
    query: Optional[str]
    headers: Dict[str, List[str]]
    body: Any


class _PastWait(TypedDict):
    reason: str


class PastWait(_PastWait, total=False):
    since: Optional[str]
    until: Optional[str]


class _TimelineEntry(TypedDict):
    event: str


class TimelineEntry(_TimelineEntry, total=False):
    at: Optional[str]
    detail: Optional[str]
    upstream: Optional[str]
    code: Optional[str]
    waited: Optional[PastWait]


class _Job(TypedDict):
    id: str
    jobId: str
    lane: str
    tenant: str
    priority: Priority
    status: JobStatus
    attempts: int
    timeline: List[TimelineEntry]


class Job(_Job, total=False):
    type: Optional[str]
    params: Any
    request: Optional[ShownRequest]
    message: Any
    reason: Optional[str]
    createdAt: Optional[str]
    expiresAt: Optional[str]
    upstream: Optional[str]
    externalId: Optional[str]
    lastFailure: Optional[LastFailure]
    result: Optional[JobResult]
    deadLetter: bool


class _JobEvent(TypedDict):
    event: str
    status: JobStatus


class JobEvent(_JobEvent, total=False):
    at: Optional[str]
    detail: Optional[str]
    upstream: Optional[str]
    code: Optional[str]
    waited: Optional[PastWait]
    job: Optional[Job]


class _JobList(TypedDict):
    jobs: List[Job]


class JobList(_JobList, total=False):
    cursor: Optional[str]


class _Gate(TypedDict):
    reason: str
    open: bool
    level: int


class Gate(_Gate, total=False):
    upstream: Optional[str]
    tenant: Optional[str]
    policy: Optional[str]
    scope: Optional[str]
    until: Optional[str]
    limit: Optional[int]


class _WhyAnswer(TypedDict):
    status: JobStatus
    detail: str
    position: int
    willExpire: bool
    gates: List[Gate]


class WhyAnswer(_WhyAnswer, total=False):
    reason: Optional[str]
    upstream: Optional[str]
    tenant: Optional[str]
    policy: Optional[str]
    scope: Optional[str]
    until: Optional[str]
    eta: Optional[str]


class _DeadLetter(TypedDict):
    jobId: str
    outboxId: str
    companyId: str
    failedAttempts: int
    lastFailureReason: str
    ttl: int
    lane: str


class DeadLetter(_DeadLetter, total=False):
    originalData: Any
    lastFailureCode: Optional[str]
    lastFailureTimestamp: Optional[str]
    enqueuedAt: Optional[str]
    movedToDLQAt: Optional[str]
    upstream: Optional[str]
    replayedBy: Optional[str]
    redrives: int
    nextRedriveAt: Optional[str]


class _DeadLetterList(TypedDict):
    deadLetters: List[DeadLetter]


class DeadLetterList(_DeadLetterList, total=False):
    cursor: Optional[str]


class FilterBody(TypedDict, total=False):
    lane: Optional[str]
    tenant: Optional[str]
    code: Optional[str]
    since: Optional[str]
    until: Optional[str]


class _BulkReplay(TypedDict):
    replayId: str
    status: str
    total: int
    replayed: int
    failed: int
    running: int
    remaining: int
    filter: FilterBody


class BulkReplay(_BulkReplay, total=False):
    startedAt: Optional[str]
    endedAt: Optional[str]


class AcquireRequest(TypedDict, total=False):
    wait: Optional[str]
    request: Optional[HttpRequest]
    scope: Optional[str]
    hold: Optional[float]


class _Acquired(TypedDict):
    granted: bool
    leaseId: str


class Acquired(_Acquired, total=False):
    key: Optional[str]
    remaining: Optional[int]


class FieldError(TypedDict):
    field: str
    problem: str


class _Problem(TypedDict):
    type: str
    title: str
    status: int
    detail: str


_ProblemMembers = TypedDict("_ProblemMembers", {"violated-policies": List[str]}, total=False)


class Problem(_Problem, _ProblemMembers, total=False):
    errors: List[FieldError]
    reason: str
    lane: str
    eta: str
    jobId: str
    jobStatus: JobStatus


#: The result of one job of a batch.
BatchAnswer = Union[Accepted, CachedAnswer, Problem]
