"""Errors: one class for each kind that a caller may want to handle."""

from __future__ import annotations

import json
from typing import Dict, Optional, Type, cast

from .types import Job, Problem


class EclusaError(Exception):
    """The base of every error of this client."""


class TransportError(EclusaError):
    """The server could not be reached, the response was incomplete, or it did not come from the server."""


class WaitTimeoutError(EclusaError):
    """The job did not end in time; ``job`` is its last known state."""

    def __init__(self, job: Job) -> None:
        super().__init__(f"job {job['jobId']} did not end in time: its status is {job['status']}")
        self.job = job


class WebhookVerificationError(EclusaError):
    """A webhook has no valid signature, or is too old."""


class ProblemError(EclusaError):
    """The server answered with problem details (RFC 9457)."""

    def __init__(self, problem: Problem, retry_after: Optional[int] = None) -> None:
        super().__init__(f"{problem['status']} {problem['title']}: {problem['detail']}")
        #: The problem as received, with the members of its type.
        self.problem = problem
        #: The HTTP status.
        self.status: int = problem["status"]
        #: For example ``urn:eclusa:problem:queue-full``.
        self.type: str = problem["type"]
        #: What is wrong, where, and how to fix it.
        self.detail: str = problem["detail"]
        #: Seconds after which to retry, if the server says so.
        self.retry_after = retry_after


class UnauthorizedError(ProblemError):
    """401: the key is missing or unknown."""


class ForbiddenError(ProblemError):
    """403: the key does not allow this."""


class NotFoundError(ProblemError):
    """404: no such job, lane, upstream, lease or dead letter."""


class ConflictError(ProblemError):
    """409: the current state does not allow it."""


class InvalidError(ProblemError):
    """400, 413 and 422: the request is wrong; ``problem["errors"]`` names the fields, if known."""


class QuotaExceededError(ProblemError):
    """429: a gate denies the call now; see ``retry_after`` and ``problem["reason"]``."""


class UnavailableError(ProblemError):
    """503: the lane is full, the store does not answer, or the server is stopping."""


_CLASSES: Dict[int, Type[ProblemError]] = {
    400: InvalidError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    413: InvalidError,
    422: InvalidError,
    429: QuotaExceededError,
    503: UnavailableError,
}


def problem_of(status: int, retry_after: Optional[str], body: bytes) -> ProblemError:
    """Converts an error response to an error."""
    try:
        problem = json.loads(body)
        texts = (problem["type"], problem["title"], problem["detail"])
        if not isinstance(problem["status"], int) or not all(isinstance(text, str) for text in texts):
            raise TypeError("no problem details")
    except (ValueError, KeyError, TypeError):
        # The response comes from something between the server and this client.
        text = body[:500].decode("utf-8", "replace")
        problem = {"type": "about:blank", "title": "Unexpected response", "status": status, "detail": text}
    seconds = int(retry_after) if retry_after and retry_after.isdecimal() else None
    return _CLASSES.get(status, ProblemError)(cast(Problem, problem), seconds)
