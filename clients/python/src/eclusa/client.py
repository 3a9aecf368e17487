"""The client."""

from __future__ import annotations

import http.client
import json
import math
import time
import uuid
from dataclasses import dataclass
from typing import Any, Dict, Iterable, Iterator, List, Literal, Mapping, Optional, Tuple, Union, cast

from .errors import ProblemError, TransportError, WaitTimeoutError
from .transport import Call, Transport, quoted
from .types import (
    Accepted,
    AcquireRequest,
    Acquired,
    BatchAnswer,
    BulkReplay,
    CachedAnswer,
    DeadLetter,
    DeadLetterList,
    FilterBody,
    Job,
    JobEvent,
    JobList,
    JobRequest,
    WhyAnswer,
)

#: Seconds of one long poll, below what servers usually allow.
_POLL = 20.0
#: Seconds that ``acquire`` may wait at the most; the server's ``max_wait`` is usually shorter.
_MAX_WAIT = 600.0
#: Seconds between two looks at a server that does not wait.
_PAUSE = 0.2

#: What a worker reports of a call it made: the HTTP status, or why there is none.
CallStatus = Union[int, Literal["timeout", "connection_error", "not_sent"]]


def is_final(status: str) -> bool:
    """Whether a job with this status has ended."""
    return status in ("completed", "failed", "dropped", "cancelled")


@dataclass
class FollowedEvent:
    """One line of a job's timeline; ``id`` is its number."""

    id: int
    data: JobEvent


class Eclusa:
    """A client of one server. It has no state but its settings, and may be used by several threads.

    ``url`` is where the server listens, else ``ECLUSA_URL``, else ``http://127.0.0.1:8080``; ``key`` is a key of its config, else
    ``ECLUSA_KEY``. ``retries`` is how often a request is repeated after a lost connection, 429 or 503; ``timeout`` how many
    seconds the server may be silent, besides what it is asked to wait; ``max_retry_delay`` the longest time between two
    attempts, whatever ``Retry-After`` says.
    """

    def __init__(
        self,
        url: Optional[str] = None,
        key: Optional[str] = None,
        *,
        retries: int = 4,
        timeout: float = 30,
        max_retry_delay: float = 30,
    ) -> None:
        self._http = Transport(url, key, retries=retries, timeout=timeout, max_retry_delay=max_retry_delay)
        self.dead_letters = DeadLetters(self._http)

    def enqueue(
        self,
        lane: str,
        job: JobRequest,
        *,
        idempotency_key: Optional[str] = None,
        wait: Optional[float] = None,
    ) -> Union[Accepted, Job, CachedAnswer]:
        """Enqueues a job.

        Safe to repeat: a job without ``id`` gets an idempotency key, so a retry after a lost connection is the same job. The
        answer is what was accepted; the job itself if ``wait`` (seconds) was given and it ended in time; or an answer of the
        cache.
        """
        headers: Dict[str, str] = {}
        key = idempotency_key or (None if job.get("id") else str(uuid.uuid4()))
        if key:
            headers["Idempotency-Key"] = key
        call = Call("POST", f"/v1/lanes/{quoted(lane)}/jobs", headers=headers, body=job)
        if wait is not None:
            call.wait = math.ceil(wait)
            headers["Prefer"] = f"wait={call.wait}"
        return cast(Union[Accepted, Job, CachedAnswer], self._http.json(call))

    def enqueue_batch(self, lane: str, jobs: Iterable[JobRequest]) -> List[BatchAnswer]:
        """Enqueues up to 1000 jobs, with an answer each: what was accepted, an answer of the cache, or a problem."""
        body = [job if job.get("id") else {**job, "id": str(uuid.uuid4())} for job in jobs]
        call = Call("POST", f"/v1/lanes/{quoted(lane)}/jobs/batch", body=body)
        return cast(List[BatchAnswer], self._http.json(call))

    def run(
        self,
        lane: str,
        job: JobRequest,
        *,
        timeout: float = math.inf,
        idempotency_key: Optional[str] = None,
    ) -> Union[Job, CachedAnswer]:
        """Enqueues a job and waits for its end. An answer of the cache is a completed job without an id."""
        deadline = time.monotonic() + timeout
        answer = self.enqueue(lane, job, idempotency_key=idempotency_key, wait=min(_POLL, timeout))
        if "timeline" in answer or "jobId" not in answer:
            return cast(Union[Job, CachedAnswer], answer)
        accepted = cast(Accepted, answer)
        return self.wait(accepted["jobId"], timeout=max(0.0, deadline - time.monotonic()))

    def wait(self, id: str, *, timeout: float = math.inf, lane: Optional[str] = None) -> Job:
        """The job once it has ended, however it did; ``WaitTimeoutError`` if it has not after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            asked = time.monotonic()
            left = min(_POLL, max(0.0, deadline - asked))
            query = {"timeout": left, "lane": lane}
            job: Job = self._http.json(Call("GET", f"/v1/jobs/{quoted(id)}/wait", query=query, wait=left))
            if is_final(job["status"]):
                return job
            if time.monotonic() >= deadline:
                raise WaitTimeoutError(job)
            # A server that is stopping, or that allows no waits, answers at once.
            if time.monotonic() - asked < _PAUSE:
                time.sleep(_PAUSE)

    def events(
        self, id: str, *, last_event_id: int = 0, lane: Optional[str] = None
    ) -> Iterator[FollowedEvent]:
        """What happens to a job, as it happens, to its end.

        A stream that breaks is taken up again where it was. The last event has the job. A job that ended before
        ``last_event_id`` has no events.
        """
        last, quiet = last_event_id, 0
        while True:
            headers = {"Accept": "text/event-stream", "Last-Event-ID": str(last)}
            call = Call("GET", f"/v1/jobs/{quoted(id)}/events", query={"lane": lane}, headers=headers)
            try:
                with self._http.stream(call) as answer:
                    if answer.status == 204:
                        return
                    for number, data in _server_events(answer):
                        last, quiet = number or last, 0
                        event: JobEvent = json.loads(data)
                        yield FollowedEvent(last, event)
                        if is_final(event["status"]) and event.get("job"):
                            return
            except ProblemError as problem:
                if problem.status != 503 or quiet > 4:
                    raise
            except (TransportError, OSError, http.client.HTTPException):
                if quiet > 4:
                    raise
            # The stream broke, or was open for an hour.
            time.sleep(min(5.0, _PAUSE * 2**quiet))
            quiet += 1

    def get(self, id: str, *, lane: Optional[str] = None) -> Job:
        """A job with its history and result."""
        return cast(Job, self._http.json(Call("GET", f"/v1/jobs/{quoted(id)}", query={"lane": lane})))

    def cancel(self, id: str, *, lane: Optional[str] = None) -> Job:
        """Cancels a job that has not ended."""
        call = Call("DELETE", f"/v1/jobs/{quoted(id)}", query={"lane": lane}, done=_is_cancelled)
        return cast(Optional[Job], self._http.json(call)) or self.get(id, lane=lane)

    def why(self, id: str, *, lane: Optional[str] = None) -> WhyAnswer:
        """Why a job waits, and until when."""
        return cast(WhyAnswer, self._http.json(Call("GET", f"/v1/jobs/{quoted(id)}/why", query={"lane": lane})))

    def search(self, **filter: Any) -> JobList:
        """A page of the jobs that fit, the newest first: ``lane``, ``tenant``, ``status``, ``id``, ``externalId``, ``since``,
        ``until``; go on with its ``cursor``."""
        return cast(JobList, self._http.json(Call("GET", "/v1/jobs", query=filter)))

    def acquire(self, upstream: str, request: Optional[AcquireRequest] = None) -> Lease:
        """A permit for one call to an upstream that the caller makes itself.

        ``QuotaExceededError`` if there is none, after ``wait`` if that is given (``"5s"``). Settle the lease with how the call
        went.
        """
        body = request or {}
        call = Call("POST", f"/v1/limits/{quoted(upstream)}/acquire", body=body, repeat="refusals", final=(429,))
        if body.get("wait"):
            call.wait = _MAX_WAIT
        return Lease(self._http, cast(Acquired, self._http.json(call)))

    def call(self, method: str, path: str, *, query: Optional[Mapping[str, Any]] = None, body: Any = None) -> Any:
        """Any other call of the API, with the same retries; see the OpenAPI document.

        An answer that is not JSON comes as text.
        """
        repeat = "always" if method == "GET" else "refusals"
        return self._http.json_or_text(Call(method, path, query=query or {}, body=body, repeat=repeat))


class Lease:
    """A permit for one call. It ends by itself after the server's ``workers.lease``."""

    def __init__(self, http: Transport, acquired: Acquired) -> None:
        self._http = http
        self.id: str = acquired["leaseId"]
        #: The name of the upstream's key to use, where it has several.
        self.key: Optional[str] = acquired.get("key")
        #: What is left of the tightest limit; ``None`` if there is none.
        self.remaining: Optional[int] = acquired.get("remaining")

    def settle(self, status: CallStatus, *, retry_after: Optional[str] = None, usage: Any = None) -> None:
        """Reports how the call went and ends the lease. ``retry_after`` is the answer's header as it came."""
        report = {"status": status, "retryAfter": retry_after, "usage": usage}
        body = {name: value for name, value in report.items() if value is not None}
        path = f"/v1/limits/leases/{quoted(self.id)}/settle"
        self._http.json(Call("POST", path, body=body, done=_is_gone))

    def extend(self) -> None:
        """Makes it last for ``workers.lease`` from now."""
        self._http.json(Call("POST", f"/v1/limits/leases/{quoted(self.id)}/extend"))


class DeadLetters:
    """Jobs that failed for good."""

    def __init__(self, http: Transport) -> None:
        self._http = http

    def list(self, **filter: Any) -> DeadLetterList:
        """A page of those that fit: ``lane``, ``tenant``, ``code``, ``since``, ``until``; go on with its ``cursor``."""
        return cast(DeadLetterList, self._http.json(Call("GET", "/v1/dead-letters", query=filter)))

    def get(self, id: str) -> DeadLetter:
        """One dead letter with what was to be sent."""
        return cast(DeadLetter, self._http.json(Call("GET", f"/v1/dead-letters/{quoted(id)}")))

    def replay(self, id: str, patch: Optional[Mapping[str, Any]] = None) -> Accepted:
        """Enqueues it again; ``patch`` is a merge patch (RFC 7396) over its ``originalData``.

        After a lost connection it is not sent again: that could make a second job.
        """
        call = Call("POST", f"/v1/dead-letters/{quoted(id)}/replay", repeat="refusals")
        if patch is not None:
            call.body, call.content_type = patch, "application/merge-patch+json"
        return cast(Accepted, self._http.json(call))

    def replay_all(self, filter: Optional[FilterBody] = None) -> BulkReplay:
        """Enqueues all that fit again, as their lanes have room. Follow it with ``replayed``."""
        call = Call("POST", "/v1/dead-letters/replay", body={"filter": filter or {}}, repeat="refusals")
        return cast(BulkReplay, self._http.json(call))

    def replayed(self, replay_id: str) -> BulkReplay:
        """How far a replay of many is."""
        return cast(BulkReplay, self._http.json(Call("GET", f"/v1/dead-letters/replays/{quoted(replay_id)}")))

    def discard(self, id: str) -> Optional[DeadLetter]:
        """Removes it for good. The answer is what was removed; ``None`` if the answer that had it was lost."""
        call = Call("DELETE", f"/v1/dead-letters/{quoted(id)}", done=_is_gone)
        return cast(Optional[DeadLetter], self._http.json(call))


def _is_gone(problem: ProblemError) -> bool:
    return problem.status == 404


def _is_cancelled(problem: ProblemError) -> bool:
    return problem.status == 409 and problem.problem.get("jobStatus") == "cancelled"


def _server_events(lines: Iterable[bytes]) -> Iterator[Tuple[int, str]]:
    """The events of a stream by number, as they come; comments are left out."""
    number, data = 0, []
    for line in lines:
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "id":
            number = int(value)
        elif name == "data":
            data.append(value)
        elif not line.strip() and data:
            yield number, "\n".join(data)
            data = []
