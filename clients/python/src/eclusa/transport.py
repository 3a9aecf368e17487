"""Sends requests, with retries."""

from __future__ import annotations

import http.client
import json
import os
import random
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Callable, Collection, Dict, Mapping, Optional

from .errors import ProblemError, TransportError, problem_of


@dataclass
class Call:
    """One request. ``repeat`` says after what it may be sent again: ``always`` also after a lost connection, when the server
    may have acted on it; ``refusals`` only after 429 and 503; ``never``."""

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    content_type: str = "application/json"
    #: Seconds of waiting requested from the server.
    wait: float = 0
    repeat: str = "always"
    #: Statuses that are not repeated.
    final: Collection[int] = ()
    #: Whether a problem after a lost connection shows that the lost request succeeded; the result is then ``None``.
    done: Optional[Callable[[ProblemError], bool]] = None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


class Transport:
    """Sends requests to the server."""

    def __init__(
        self, url: Optional[str], key: Optional[str], *, retries: int, timeout: float, max_retry_delay: float
    ) -> None:
        self._url = (url or os.environ.get("ECLUSA_URL") or "http://127.0.0.1:8080").rstrip("/")
        self._key = key or os.environ.get("ECLUSA_KEY")
        self._retries = retries
        self._timeout = timeout
        self._max_delay = max_retry_delay
        self._opener = urllib.request.build_opener(_NoRedirect)

    def json(self, call: Call) -> Any:
        """The JSON of a successful response; otherwise raises."""
        return self._send(call, lambda answer: _json_of(self._read(answer)))

    def json_or_text(self, call: Call) -> Any:
        """Like ``json``, but a response that is not JSON is returned as text."""

        def read(answer: http.client.HTTPResponse) -> Any:
            body = self._read(answer)
            kind = answer.headers.get_content_type()
            return _json_of(body) if kind.endswith(("/json", "+json")) else body.decode("utf-8", "replace")

        return self._send(call, read)

    def _send(self, call: Call, read: Callable[[http.client.HTTPResponse], Any]) -> Any:
        lost = False
        for attempt in range(1, self._retries + 2):
            delay = min(self._max_delay, 0.1 * 2 ** (attempt - 1)) * random.uniform(0.75, 1.25)
            try:
                with self._open(call) as answer:
                    return read(answer)
            except ProblemError as problem:
                if lost and call.done and call.done(problem):
                    return None
                refused = problem.status in (429, 503) and problem.status not in call.final
                if not refused or call.repeat == "never" or attempt > self._retries:
                    raise
                if problem.retry_after is not None:
                    delay = min(self._max_delay, problem.retry_after)
            except TransportError:
                lost = True
                if call.repeat != "always" or attempt > self._retries:
                    raise
            time.sleep(delay)
        raise AssertionError("unreachable")

    def stream(self, call: Call) -> http.client.HTTPResponse:
        """A successful response with an unread body; the caller closes it."""
        return self._open(call)

    def _open(self, call: Call) -> http.client.HTTPResponse:
        query = {name: _text(value) for name, value in call.query.items() if value is not None}
        url = self._url + call.path + ("?" + urllib.parse.urlencode(query) if query else "")
        headers: Dict[str, str] = {"Accept": "application/json", **call.headers}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        data = None
        if call.body is not None:
            data = json.dumps(call.body).encode()
            headers["Content-Type"] = call.content_type
        request = urllib.request.Request(url, data=data, headers=headers, method=call.method)
        try:
            answer: http.client.HTTPResponse = self._opener.open(request, timeout=self._timeout + call.wait)
            return answer
        except urllib.error.HTTPError as refused:
            with refused:
                raise problem_of(refused.code, refused.headers.get("Retry-After"), self._read(refused)) from None
        except (OSError, http.client.HTTPException) as error:
            raise TransportError(f"{call.method} {call.path}: {error}") from error

    @staticmethod
    def _read(answer: Any) -> bytes:
        try:
            body: bytes = answer.read()
            return body
        except (OSError, http.client.HTTPException) as error:
            raise TransportError(f"the response broke off: {error}") from error


def _json_of(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        start = body[:200].decode("utf-8", "replace")
        raise TransportError(f"the response is not JSON: {start}") from error


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def quoted(part: str) -> str:
    """Quotes a path segment."""
    return urllib.parse.quote(part, safe="")
