"""Frozen records of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Request:
    """One call to AWS in boto3's names, as ("sagemaker", "create_model", {...})."""

    service: str
    operation: str
    parameters: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the resource that it creates."""
        own = "".join(word.capitalize() for word in self.operation.split("_")[1:])
        return str(self.parameters.get(f"{own}Name", self.parameters.get("Name", "")))


@dataclass(frozen=True)
class MemoryFit:
    """Memory fit of one replica in GB of 10^9 bytes; ``lines`` shows the sum."""

    weights_gb: float
    head_gb: float
    kv_cache_gb: float
    overhead_gb: float
    available_gb: float
    fits: bool
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Names:
    """Names of everything that one deploy creates; ``component`` may be None.

    The component has the endpoint's name, so that a caller need not know the hash.
    """

    endpoint: str
    config: str
    model: str
    schedule: str
    component: str | None = None


@dataclass(frozen=True)
class Context:
    """Place and time of a plan.

    ``local`` is True for the local SageMaker; ``image_uris``, ``artifacts`` and the two roles then come from
    `peagle-sm local status`. ``now`` must be timezone-aware; only the lifetime schedule uses it, and None
    leaves that request out.

    ``stack`` is the name of the plan's CloudFormation stack, None for a deploy by boto3. For a stack, account
    and roles may be placeholders such as "${ExecutionRoleArn}", which the payloads contain unchanged.
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
