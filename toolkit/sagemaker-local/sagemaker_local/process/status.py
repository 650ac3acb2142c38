"""Data of `peagle-sm local status`: all that a script needs to use a local server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

REGION = "us-east-1"
ACCOUNT = "123456789012"


@dataclass(frozen=True)
class LocalStatus:
    """One running server.

    ``run_id`` is new with each start: a port and a process id may be the same again, as in a container.
    A server of an older version has none.
    ``artifacts`` has the S3 URIs of SmolLM2, of the tests' small model, and of their heads. Shipped weights
    that are missing are left out; ``weights`` says so. ``clock`` is the local time in ISO 8601,
    ``clock_ahead_s`` how far it was moved. ``engines`` has one entry a running engine, ``faults`` one a fault
    that is set.
    """

    endpoint_url: str
    region: str
    account: str
    role_arn: str
    scheduler_role_arn: str
    image_uris: Mapping[str, str]
    artifacts: Mapping[str, str]
    weights: str
    pid: int
    port: int
    log_path: str
    clock: str
    clock_ahead_s: float
    engines: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    run_id: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> LocalStatus:
        """Read what ``to_dict`` wrote; unknown fields of a newer server are left out."""
        known = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in raw.items() if name in known})
