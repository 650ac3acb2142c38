"""Checks, the facts that a preflight reads, and results. Pure.

A check covers one known problem. `check` makes one from a function of the spec's draft, or of a fact that a
reader in `peagle_sm.aws.readers` returns. None in a fact means not reported.
`judge` turns facts into results; nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal

from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.words import Finding, Severity

SPEC = "spec"
"""Reader name of a check that needs only the spec."""

Findings = Iterator[str | Finding]
"""What a check yields: a message, which takes the check's severity and remedy, or a whole finding."""


@dataclass(frozen=True)
class Check:
    """One check: ``what`` it finds, ``why`` that matters, ``source`` and ``remedy``.

    ``url`` is the public page of ``source``, empty for this project's own rules. ``severity`` is the worst
    that it reports. ``reads`` names the reader of its fact, "spec" for none.
    """

    id: str
    what: str
    why: str
    source: str
    remedy: str
    look: Callable[..., Findings]
    severity: Severity = "error"
    url: str = ""
    reads: str = SPEC
    needs_spec: bool = True

    def findings(self, *given: Any) -> list[Finding]:
        """Return what ``look`` finds, each with this check's id, source and url, and a next step."""
        raw = (Finding(self.severity, item) if isinstance(item, str) else item for item in self.look(*given))
        return [
            replace(
                finding,
                check=self.id,
                next_step=finding.next_step or self.remedy,
                source=self.source,
                url=self.url,
            )
            for finding in raw
        ]


def check(
    check_id: str,
    *,
    why: str,
    source: str,
    remedy: str,
    severity: Severity = "error",
    url: str = "",
    reads: str = SPEC,
    needs_spec: bool = True,
) -> Callable[[Callable[..., Findings]], Check]:
    """Make a check from a function, whose docstring is the ``what``.

    The function takes the draft. With ``reads`` it takes the fact and the draft (None only if ``needs_spec``
    is False), and is called only if the fact could be read.
    """

    def wrap(look: Callable[..., Findings]) -> Check:
        what = (look.__doc__ or "").strip()
        return Check(check_id, what, why, source, remedy, look, severity, url, reads, needs_spec)

    return wrap


@dataclass(frozen=True)
class Identity:
    """Caller's identity; if ``problem`` is set, account and ARN are None.

    ``skew_s`` is this machine's clock minus AWS's, in seconds. ``assumed_region`` is the region of the checks
    if no region is set.
    """

    account: str | None = None
    arn: str | None = None
    problem: str | None = None
    next_step: str = ""
    skew_s: float | None = None
    assumed_region: str | None = None


@dataclass(frozen=True)
class Rights:
    """Result of a policy simulation; each list has actions with their resource.

    ``denied_later``: calls after the deploy. ``by_organization``: denied by a service control policy.
    ``undecided``: denied, unless the part in parentheses allows it: condition keys whose values only AWS
    knows, or a key's own policy.
    """

    principal: str
    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()
    denied_later: tuple[str, ...] = ()
    by_organization: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()


@dataclass(frozen=True)
class KeyRights:
    """Permissions of the containers' role for the keys of the artifacts."""

    keys: tuple[str, ...]
    rights: Rights


@dataclass(frozen=True)
class Role:
    """A role in IAM; ``policies`` are the attached ones. All empty unless ``exists``."""

    arn: str
    exists: bool = True
    trusts: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()


@dataclass(frozen=True)
class Quotas:
    """Service quotas by instance type, and their present use.

    ``granted`` lacks types that have no quota in the account. ``in_use`` counts the instances of all
    endpoints by type, ``own_in_use`` those of the spec's endpoint; ``all_granted`` is the quota of all types.
    """

    granted: Mapping[str, float] = field(default_factory=dict)
    in_use: Mapping[str, int] = field(default_factory=dict)
    own_in_use: Mapping[str, int] = field(default_factory=dict)
    all_granted: float | None = None


@dataclass(frozen=True)
class Prefix:
    """An S3 prefix: its first ``keys`` with sizes, or a ``problem`` of reading it.

    The keys are relative to the prefix; "" is an object that has the prefix itself as its key.
    """

    uri: str
    keys: Mapping[str, int] = field(default_factory=dict)
    more: bool = False
    region: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Artifacts:
    """Prefixes of target and head."""

    target: Prefix | None = None
    head: Prefix | None = None

    @property
    def all(self) -> tuple[tuple[str, Prefix], ...]:
        """Return each prefix with its field in the spec."""
        pairs = (("model_uri", self.target), ("head_uri", self.head))
        return tuple((name, prefix) for name, prefix in pairs if prefix is not None)


@dataclass(frozen=True)
class GenerationDefaults:
    """Content of the generation_config.json beside the weights; empty without one."""

    uri: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EcrImage:
    """Whether a registry has the image; ``reason`` is the registry's error if not."""

    uri: str
    exists: bool
    reason: str = ""


@dataclass(frozen=True)
class Key:
    """A KMS key and its state, "" if it does not exist."""

    key_id: str
    state: str = ""


@dataclass(frozen=True)
class Reservation:
    """Reservation of a training plan."""

    arn: str
    status: str = ""
    ends: datetime | None = None
    instance_types: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    free: int | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Guard:
    """Status of the guard's stack (None without one), and both versions."""

    status: str | None
    installed: str | None = None
    shipped: str | None = None
    works: bool = False


@dataclass(frozen=True)
class Taken:
    """Endpoint that already has the name; ``status`` None: there is none."""

    status: str | None = None
    ours: bool = False
    stack: str | None = None


@dataclass(frozen=True)
class Network:
    """Existing parts of the VPC by id; subnets with zone and free addresses."""

    subnets: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    security_groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Machine:
    """This machine; ``engine`` is "ready", "not built" or "incomplete"."""

    missing_packages: tuple[str, ...] = ()
    disk_free_bytes: int = 0
    disk_path: str = ""
    memory_free_bytes: int | None = None
    engine: str = "ready"
    platform: str = "linux"


Status = Literal["ok", "warning", "error", "unknown", "skipped"]
STATUSES: tuple[Status, ...] = ("error", "warning", "unknown", "skipped", "ok")
"""Statuses in display order, worst first."""


@dataclass(frozen=True)
class Unknown:
    """A fact that could not be read; ``permission`` is the denied action, if any."""

    reason: str
    permission: str | None = None


@dataclass(frozen=True)
class Result:
    """One line of a preflight's output; a check that found several things has several.

    ``permission`` is the missing one of an unknown check.
    """

    check: str
    status: Status
    message: str
    what: str
    why: str
    next_step: str = ""
    source: str = ""
    url: str = ""
    permission: str | None = None
    expires: str | None = None


def judge(
    checks: Iterable[Check],
    facts: Mapping[str, Any],
    draft: Draft | None,
    skip: Collection[str] = (),
) -> tuple[Result, ...]:
    """Run checks on facts; worst results first, otherwise in the checks' order.

    Args:
        checks: the checks to run; a check whose reader is not in ``facts`` is left out.
        facts: the result of each reader, or an `Unknown`.
        draft: the resolved spec; None without one.
        skip: ids to report as skipped, with what they check.
    """
    results = [result for check in checks for result in _results(check, facts, draft, skip)]
    return tuple(sorted(results, key=lambda result: STATUSES.index(result.status)))


def _results(
    check: Check, facts: Mapping[str, Any], draft: Draft | None, skip: Collection[str]
) -> Iterator[Result]:
    needs_spec = check.needs_spec or check.reads == SPEC
    if (draft is None and needs_spec) or (check.reads != SPEC and check.reads not in facts):
        return
    result = partial(Result, check.id, what=check.what, why=check.why, source=check.source, url=check.url)
    fact = facts.get(check.reads)
    if check.id in skip:
        yield result("skipped", f"skipped; it checks for: {check.what} {check.why}")
    elif isinstance(fact, Unknown):
        step = (
            f"Ask for the permission {fact.permission}, or check it yourself: {check.remedy}"
            if fact.permission
            else f"Check it yourself: {check.remedy}"
        )
        yield result("unknown", fact.reason, next_step=step, permission=fact.permission)
    else:
        findings = check.findings(draft) if check.reads == SPEC else check.findings(fact, draft)
        for finding in findings:
            status: Status = "ok" if finding.severity == "info" else finding.severity
            yield result(
                status,
                finding.message,
                next_step=finding.next_step,
                expires=finding.expires,
            )
        if not findings:
            yield result("ok", "")
