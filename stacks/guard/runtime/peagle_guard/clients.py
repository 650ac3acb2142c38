"""boto3's clients with the guard's patience, behind the small protocols that its modules declare."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config

# A Lambda has minutes at most: no single call may hang for long.
PATIENT = Config(connect_timeout=5, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 4})
# An invocation is not repeated: the next sweep is the retry. One that hangs must leave time for the others.
ONCE = Config(connect_timeout=5, read_timeout=60, retries={"total_max_attempts": 1})


def client(service: str, session: boto3.Session | None = None, config: Config = PATIENT) -> Any:
    """Return a client of the session, by default the Lambda's own."""
    make: Any = session or boto3
    return make.client(service, config=config)
