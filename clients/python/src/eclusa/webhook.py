"""Verification of the server's callbacks, signed according to Standard Webhooks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Mapping, Optional, Union, cast

from .errors import WebhookVerificationError
from .types import Job

#: The minimum length the server requires of ``[callbacks] secret``.
_SHORTEST_SECRET = 16


def verify_webhook(
    secret: str,
    headers: Mapping[str, str],
    body: Union[bytes, str],
    *,
    tolerance: float = 300,
    now: Optional[float] = None,
) -> Job:
    """Checks that a callback comes from the server and returns the job that has ended.

    ``secret`` is ``[callbacks] secret`` of the server: text, or base64 after ``whsec_``; at least 16 characters. ``body`` is the
    raw body, not parsed. ``tolerance`` is the maximum difference between its timestamp and now, in seconds. A message may be
    delivered twice: remember ``webhook-id``.
    """
    given = {name.lower(): value for name, value in headers.items()}
    for name in ("webhook-id", "webhook-timestamp", "webhook-signature"):
        if not given.get(name):
            raise WebhookVerificationError(f"the header {name} is missing")
    timestamp = given["webhook-timestamp"]
    moment = time.time() if now is None else now
    if not (timestamp.isascii() and timestamp.isdecimal()) or abs(moment - int(timestamp)) > tolerance:
        raise WebhookVerificationError(f"webhook-timestamp is {timestamp}: too old, or not a time near now")
    raw = body.encode() if isinstance(body, str) else body
    signed = f"{given['webhook-id']}.{timestamp}.".encode() + raw
    expected = hmac.new(_key(secret), signed, hashlib.sha256).digest()
    if not any(hmac.compare_digest(_decoded(one), expected) for one in given["webhook-signature"].split(" ")):
        raise WebhookVerificationError("webhook-signature does not match the body and the secret")
    return cast(Job, json.loads(raw))


def _key(secret: str) -> bytes:
    if not secret or len(secret) < _SHORTEST_SECRET:
        raise WebhookVerificationError(f"the secret is missing or shorter than {_SHORTEST_SECRET} characters")
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        return base64.b64decode(secret[len("whsec_") :], validate=True)
    except ValueError:
        raise WebhookVerificationError("the secret after whsec_ is not base64") from None


def _decoded(signature: str) -> bytes:
    if not signature.startswith("v1,"):
        return b""
    try:
        return base64.b64decode(signature[3:], validate=True)
    except ValueError:
        return b""
