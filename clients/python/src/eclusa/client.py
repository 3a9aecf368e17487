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

#: Seconds per long poll; servers usually allow more.
_POLL = 20.0
#: Maximum seconds that ``acquire`` waits; the server's ``max_wait`` is usually shorter.
_MAX_WAIT = 600.0
#: Seconds between two polls of a server that does not wait.
_PAUSE = 0.2

#: The result of a call, as a worker reports it: the HTTP status, or why there is none.
CallStatus = Union[int, Literal["timeout", "connection_error", "not_sent"]]


def is_final(status: str) -> bool:
    """Whether a job with this status has ended."""
    return status in ("completed", "failed", "dropped", "cancelled")


@dataclass
class FollowedEvent:
    """One entry of a job's timeline; ``id`` is its number."""

    id: int
    data: JobEvent


class Eclusa:
    """A client of one server. It holds only settings, so several threads may share it.

    ``url`` is the server's URL, else ``ECLUSA_URL``, else ``http://127.0.0.1:8080``; ``key`` is a key from its config, else
    ``ECLUSA_KEY``. ``retries`` is the maximum number of retries after a lost connection, 429 or 503; ``timeout`` the seconds
    that the server may be silent, in addition to a requested wait; ``max_retry_delay`` the maximum seconds between two
    attempts, even if ``Retry-After`` is longer.
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

        Safe to repeat: a job without ``id`` gets an idempotency key, so a retry after a lost connection is the same job.
        Returns what was accepted; the job itself if ``wait`` (seconds) was given and it ended in time; or an answer from the
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
        """Enqueues up to 1000 jobs. Returns one result per job: accepted, answered from the cache, or a problem."""
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
        """Enqueues a job and waits for its end. An answer from the cache is a completed job without an id."""
        deadline = time.monotonic() + timeout
        answer = self.enqueue(lane, job, idempotency_key=idempotency_key, wait=min(_POLL, timeout))
        if "timeline" in answer or "jobId" not in answer:
            return cast(Union[Job, CachedAnswer], answer)
        accepted = cast(Accepted, answer)
        return self.wait(accepted["jobId"], timeout=max(0.0, deadline - time.monotonic()))

    def wait(self, id: str, *, timeout: float = math.inf, lane: Optional[str] = None) -> Job:
        """Waits until the job has ended, with any status; raises ``WaitTimeoutError`` after ``timeout`` seconds."""
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
            # A server that is stopping, or that allows no waits, responds at once.
            if time.monotonic() - asked < _PAUSE:
                time.sleep(_PAUSE)

    def events(
        self, id: str, *, last_event_id: int = 0, lane: Optional[str] = None
    ) -> Iterator[FollowedEvent]:
        """Follows the events of a job until it ends.

        A broken stream is resumed where it stopped. The last event contains the job. A job that ended before
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
        """Gets a job with its timeline and result."""
        return cast(Job, self._http.json(Call("GET", f"/v1/jobs/{quoted(id)}", query={"lane": lane})))

    def cancel(self, id: str, *, lane: Optional[str] = None) -> Job:
        """Cancels a job that has not ended."""
        call = Call("DELETE", f"/v1/jobs/{quoted(id)}", query={"lane": lane}, done=_is_cancelled)
        return cast(Optional[Job], self._http.json(call)) or self.get(id, lane=lane)

    def why(self, id: str, *, lane: Optional[str] = None) -> WhyAnswer:
        """Explains why a job waits, and until when."""
        return cast(WhyAnswer, self._http.json(Call("GET", f"/v1/jobs/{quoted(id)}/why", query={"lane": lane})))

    def search(self, **filter: Any) -> JobList:
        """Returns a page of the jobs that match ``lane``, ``tenant``, ``status``, ``id``, ``externalId``, ``since``, ``until``,
        newest first; pass its ``cursor`` for the next page."""
        return cast(JobList, self._http.json(Call("GET", "/v1/jobs", query=filter)))

    def acquire(self, upstream: str, request: Optional[AcquireRequest] = None) -> Lease:
        """Acquires a permit for one call to an upstream, which the caller makes itself.

        Raises ``QuotaExceededError`` if it is denied, after ``wait`` if given (``"5s"``). Settle the lease with the result of
        the call.
        """
        body = request or {}
        call = Call("POST", f"/v1/limits/{quoted(upstream)}/acquire", body=body, repeat="refusals", final=(429,))
        if body.get("wait"):
            call.wait = _MAX_WAIT
        return Lease(self._http, cast(Acquired, self._http.json(call)))

    def call(self, method: str, path: str, *, query: Optional[Mapping[str, Any]] = None, body: Any = None) -> Any:
        """Makes any other call of the API, with the same retries; see the OpenAPI document.

        A response that is not JSON is returned as text.
        """
        repeat = "always" if method == "GET" else "refusals"
        return self._http.json_or_text(Call(method, path, query=query or {}, body=body, repeat=repeat))


class Lease:
    """A permit for one call. It expires after the server's ``workers.lease``."""

    def __init__(self, http: Transport, acquired: Acquired) -> None:
        self._http = http
        self.id: str = acquired["leaseId"]
        #: The name of the upstream's key to use, if it has ``keys``.
        self.key: Optional[str] = acquired.get("key")
        #: What is left of the tightest limit; ``None`` if there is none.
        self.remaining: Optional[int] = acquired.get("remaining")

    def settle(self, status: CallStatus, *, retry_after: Optional[str] = None, usage: Any = None) -> None:
        """Reports the result of the call and ends the lease. ``retry_after`` is the response header, unchanged."""
        report = {"status": status, "retryAfter": retry_after, "usage": usage}
        body = {name: value for name, value in report.items() if value is not None}
        path = f"/v1/limits/leases/{quoted(self.id)}/settle"
        self._http.json(Call("POST", path, body=body, done=_is_gone))

    def extend(self) -> None:
        """Extends it to ``workers.lease`` from now."""
        self._http.json(Call("POST", f"/v1/limits/leases/{quoted(self.id)}/extend"))


class DeadLetters:
    """Jobs that failed permanently."""

    def __init__(self, http: Transport) -> None:
        self._http = http

    def list(self, **filter: Any) -> DeadLetterList:
        """Returns a page of the letters that match ``lane``, ``tenant``, ``code``, ``since``, ``until``; then pass its ``cursor``."""
        return cast(DeadLetterList, self._http.json(Call("GET", "/v1/dead-letters", query=filter)))

    def get(self, id: str) -> DeadLetter:
        """Gets a dead letter with its content."""
        return cast(DeadLetter, self._http.json(Call("GET", f"/v1/dead-letters/{quoted(id)}")))

    def replay(self, id: str, patch: Optional[Mapping[str, Any]] = None) -> Accepted:
        """Enqueues it again; ``patch`` is a merge patch (RFC 7396) over its ``originalData``.

        It is not repeated after a lost connection: that could create a second job.
        """
        call = Call("POST", f"/v1/dead-letters/{quoted(id)}/replay", repeat="refusals")
        if patch is not None:
            call.body, call.content_type = patch, "application/merge-patch+json"
        return cast(Accepted, self._http.json(call))

    def replay_all(self, filter: Optional[FilterBody] = None) -> BulkReplay:
        """Enqueues all letters that match again, as their lanes have room. Follow the progress with ``replayed``."""
        call = Call("POST", "/v1/dead-letters/replay", body={"filter": filter or {}}, repeat="refusals")
        return cast(BulkReplay, self._http.json(call))

    def replayed(self, replay_id: str) -> BulkReplay:
        """Gets the progress of a bulk replay."""
        return cast(BulkReplay, self._http.json(Call("GET", f"/v1/dead-letters/replays/{quoted(replay_id)}")))

    def discard(self, id: str) -> Optional[DeadLetter]:
        """Deletes it permanently and returns it; ``None`` if it was deleted but the response was lost."""
        call = Call("DELETE", f"/v1/dead-letters/{quoted(id)}", done=_is_gone)
        return cast(Optional[DeadLetter], self._http.json(call))


def _is_gone(problem: ProblemError) -> bool:
    return problem.status == 404


def _is_cancelled(problem: ProblemError) -> bool:
    return problem.status == 409 and problem.problem.get("jobStatus") == "cancelled"


def _server_events(lines: Iterable[bytes]) -> Iterator[Tuple[int, str]]:
    """Yields the events of a stream with their numbers; comments are skipped."""
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
