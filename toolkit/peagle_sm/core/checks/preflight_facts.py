"""The facts that readers bring to a preflight's checks; None stands for what the place does not say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class Identity:
    """Who calls; ``problem`` says why nobody can, and then account and ARN are None.

    ``skew_s`` is this machine's clock minus AWS's, in seconds.
    """

    account: str | None = None
    arn: str | None = None
    problem: str | None = None
    next_step: str = ""
    skew_s: float | None = None


@dataclass(frozen=True)
class Rights:
    """What a simulation of a role's or caller's policies says; both lists name actions."""

    principal: str
    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()


@dataclass(frozen=True)
class KeyRights:
    """What the containers' role may do with the keys by which the artifacts are encrypted."""

    keys: tuple[str, ...]
    rights: Rights


@dataclass(frozen=True)
class Role:
    """A role as IAM has it; ``exists`` False leaves the rest empty. ``policies`` are the names attached."""

    arn: str
    exists: bool = True
    trusts: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Quotas:
    """Service quotas by instance type, and what counts against them now.

    ``granted`` lacks a type whose quota the account does not have at all. ``in_use`` counts the instances of
    all endpoints by type, ``own_in_use`` those of the spec's own; ``all_granted`` is the quota for all types.
    """

    granted: Mapping[str, float] = field(default_factory=dict)
    in_use: Mapping[str, int] = field(default_factory=dict)
    own_in_use: Mapping[str, int] = field(default_factory=dict)
    all_granted: float | None = None


@dataclass(frozen=True)
class Prefix:
    """An S3 prefix: ``keys`` are the first of it with their bytes; ``problem`` says why it cannot be read."""

    uri: str
    keys: Mapping[str, int] = field(default_factory=dict)
    more: bool = False
    region: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Artifacts:
    """The prefixes of target and head."""

    target: Prefix | None = None
    head: Prefix | None = None

    @property
    def all(self) -> tuple[tuple[str, Prefix], ...]:
        """Each with the spec's field that names it."""
        pairs = (("model_uri", self.target), ("head_uri", self.head))
        return tuple((name, prefix) for name, prefix in pairs if prefix is not None)


@dataclass(frozen=True)
class EcrImage:
    """Whether a registry has the image; ``reason`` is its own word where it does not."""

    uri: str
    exists: bool
    reason: str = ""


@dataclass(frozen=True)
class Key:
    """A KMS key: its state, "" where there is none of that name."""

    key_id: str
    state: str = ""


@dataclass(frozen=True)
class Reservation:
    """A training plan's reservation."""

    arn: str
    status: str = ""
    ends: datetime | None = None
    instance_types: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    free: int | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Guard:
    """The guard's stack: None where there is none. ``installed`` and ``shipped`` are its versions."""

    status: str | None
    installed: str | None = None
    shipped: str | None = None
    works: bool = False


@dataclass(frozen=True)
class Taken:
    """What has the endpoint's name already; ``status`` None: nothing."""

    status: str | None = None
    ours: bool = False
    stack: str | None = None


@dataclass(frozen=True)
class Price:
    """AWS's own price of one instance, in USD an hour; None where its price list has none for hosting."""

    instance_type: str
    usd_per_hour: float | None = None
    date: str = ""


@dataclass(frozen=True)
class Network:
    """The VPC's parts that were found, by id; subnets with their zone and free addresses."""

    subnets: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    security_groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Machine:
    """This machine and Python: versions, what is missing, bytes free, and the local engine's environment.

    ``engine`` is "ready", "not built" or "incomplete"; ``missing_members`` are the request members that the
    installed botocore does not know.
    """

    python: tuple[int, int, int]
    boto3: str
    missing_members: tuple[str, ...] = ()
    missing_packages: tuple[str, ...] = ()
    disk_free_bytes: int = 0
    disk_path: str = ""
    memory_free_bytes: int | None = None
    engine: str = "ready"
    node: str | None = None
    cdk: str | None = None
    cdk_library: bool = True
    platform: str = "linux"
