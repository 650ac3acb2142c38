"""The frozen records that a plan is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from peagle_sm.core.display.card import Card, Shown
from peagle_sm.core.spec.endpoint_spec import EndpointSpec

Severity = Literal["error", "warning", "info"]


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


@dataclass(frozen=True)
class Plan(Shown):
    """What a deploy would do, what it would cost, and what there is to say about it.

    ``most_usd_per_hour`` is the price with as many instances as scaling may come to; ``update_usd_per_hour``
    what is paid on top while an update in place runs its second fleet (None where there is none, or its
    price is not known).

    ``requests`` is empty when a fact is missing that a payload cannot do without; a finding names it.
    Money is None where no price is known; ``price_source`` then says so. ``unused_gpus`` counts the
    accelerators of one instance that no replica uses. ``max_usd`` is the price of the whole lifetime, or
    until ``kept_until``: the end of a lease of `keep` that outlasts it.
    """

    spec: EndpointSpec
    context: Context
    names: Names
    spec_hash: str
    requests: tuple[Request, ...]
    usd_per_hour: float | None
    price_source: str
    usd_per_day: float | None
    max_usd: float | None
    memory: MemoryFit | None
    unused_gpus: int
    findings: tuple[Finding, ...]
    most_usd_per_hour: float | None = None
    update_usd_per_hour: float | None = None
    kept_until: datetime | None = None

    @property
    def refused(self) -> bool:
        """True when a finding of severity "error" forbids the deploy."""
        return any(finding.severity == "error" for finding in self.findings)

    def card(self) -> Card:
        """What a notebook shows of it."""
        from peagle_sm.core.plan.in_words import plan_card

        return plan_card(self)
