"""The frozen records that a plan is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from peagle_sm.core.words import Severity


@dataclass(frozen=True)
class Request:
    """One call to AWS in boto3's names, for example ("sagemaker", "create_model", {...})."""

    service: str
    operation: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Finding:
    """What one check has to say; an "error" stops a deploy. ``url`` is the public page behind ``source``.

    An advisory carries the ISO date from which somebody must look whether it still holds.
    """

    check: str
    severity: Severity
    message: str
    next_step: str
    source: str
    url: str = ""
    expires: str | None = None


@dataclass(frozen=True)
class MemoryFit:
    """Whether one replica fits its accelerators, in GB of 10^9 bytes; ``lines`` shows the sum."""

    weights_gb: float
    head_gb: float
    kv_cache_gb: float
    overhead_gb: float
    available_gb: float
    fits: bool
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Names:
    """The names of everything that one deploy makes; ``component`` only where there is one.

    The component is called as the endpoint is, so that a caller who names it need not know of hashes.
    """

    endpoint: str
    config: str
    model: str
    schedule: str
    component: str | None = None


@dataclass(frozen=True)
class Context:
    """Where and when a plan is made.

    ``local`` is True against the local SageMaker; ``image_uris``, ``artifacts`` and the two roles
    then come from `peagle-sm local status`. ``now`` must be timezone-aware; it reaches the lifetime
    schedule alone, and None leaves that request out.

    ``stack`` names the CloudFormation stack that the plan is for, None for a deploy by boto3. Account and
    roles may be placeholders there, such as "${ExecutionRoleArn}": they go into the payloads as they are.
    """

    account: str
    region: str
    now: datetime | None = None
    image_uris: Mapping[str, str] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    local: bool = False
    role_arn: str | None = None
    scheduler_role_arn: str | None = None
    stack: str | None = None
