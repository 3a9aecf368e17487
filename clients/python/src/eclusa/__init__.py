"""Client for Eclusa, a durable queue and rate limiter in front of third-party APIs."""

from .client import CallStatus, DeadLetters, Eclusa, FollowedEvent, Lease, is_final
from .errors import (
    ConflictError,
    EclusaError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    ProblemError,
    QuotaExceededError,
    TransportError,
    UnauthorizedError,
    UnavailableError,
    WaitTimeoutError,
    WebhookVerificationError,
)
from .webhook import verify_webhook

__all__ = [
    "CallStatus",
    "ConflictError",
    "DeadLetters",
    "Eclusa",
    "EclusaError",
    "FollowedEvent",
    "ForbiddenError",
    "InvalidError",
    "Lease",
    "NotFoundError",
    "ProblemError",
    "QuotaExceededError",
    "TransportError",
    "UnauthorizedError",
    "UnavailableError",
    "WaitTimeoutError",
    "WebhookVerificationError",
    "is_final",
    "verify_webhook",
]
