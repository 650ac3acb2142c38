"""What a check is, the facts that a preflight reads, and their results. Pure.

A check explains one trap. `check` makes one of a function over the spec's draft, `preflight_check` one of a
function over a fact that a reader in `peagle_sm.aws.readers` brings. In a fact None means that the place does
not say. `judge` turns facts into results; nothing here looks anything up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal, TypeVar

from peagle_sm.core.plan.resolve import Draft
from peagle_sm.core.words import Severity

SPEC = "spec"
"""What a check of the spec alone reads: nothing."""

Edits = Mapping[str, Any]
"""Fields of a spec by their dotted names, and what to write there."""


@dataclass(frozen=True)
class Note:
    """What a check found; without a ``next_step`` the check's remedy stands.

    An advisory ``expires``: from that day on it may no longer hold, and says so.
    """

    severity: Severity
    message: str
    next_step: str = ""
    expires: date | None = None


@dataclass(frozen=True)
class Fix:
    """How `doctor --fix` mends it: by ``edits`` to the spec, or by a ``command`` that asks for itself.

    ``edits`` are pure and may be empty where nothing can be written. ``command`` is one of this program's,
    without its name, such as ("guard", "install").
    """

    what: str
    edits: Callable[[Draft], Edits] | None = None
    command: tuple[str, ...] = ()


Look = Callable[[Draft], Iterator[Note]]
Judge = Callable[[Any, "Draft | None"], Iterator[Note]]
AnyFact = TypeVar("AnyFact")


@dataclass(frozen=True)
class Check:
    """One trap: ``what`` is looked for, ``why`` it hurts, the ``source`` that says so, the ``remedy``.

    ``url`` is the public page behind ``source``, empty where the rule is this project's own. ``severity``
    is the worst that it reports. ``reads`` names the reader whose fact it judges, "spec" for none. ``look``
    takes the draft, or the fact and the draft. ``needs_spec`` is False where it says something without one.
    """

    id: str
    what: str
    why: str
    source: str
    remedy: str
    look: Callable[..., Iterator[Note]]
    severity: Severity = "error"
    url: str = ""
    reads: str = SPEC
    needs_spec: bool = True
    fix: Fix | None = None


def check(
    check_id: str,
    *,
    why: str,
    source: str,
    remedy: str,
    severity: Severity = "error",
    url: str = "",
    fix: Fix | None = None,
) -> Callable[[Look], Check]:
    """Make a check of a function over a draft; its docstring is the ``what``."""

    def wrap(look: Look) -> Check:
        what = (look.__doc__ or "").strip()
        return Check(check_id, what, why, source, remedy, look, severity, url, fix=fix)

    return wrap


def preflight_check(
    check_id: str,
    *,
    reads: str,
    why: str,
    source: str,
    remedy: str,
    severity: Severity = "error",
    url: str = "",
    needs_spec: bool = True,
    fix: Fix | None = None,
) -> Callable[[Callable[[AnyFact, Draft | None], Iterator[Note]]], Check]:
    """Make a check of a pure function over a fact that was read (``reads`` names it) and the draft, if any.

    The docstring is the ``what``. It is only called where the fact could be read.
    """

    def wrap(judge: Callable[[AnyFact, Draft | None], Iterator[Note]]) -> Check:
        what = (judge.__doc__ or "").strip()
        return Check(check_id, what, why, source, remedy, judge, severity, url, reads, needs_spec, fix)

    return wrap


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


Status = Literal["ok", "warning", "error", "unknown", "skipped"]
STATUSES: tuple[Status, ...] = ("error", "warning", "unknown", "skipped", "ok")
"""Worst first, as they are shown."""


@dataclass(frozen=True)
class Unknown:
    """A fact that could not be read; ``permission`` is the action that was denied, where it was that."""

    reason: str
    permission: str | None = None


@dataclass(frozen=True)
class Result:
    """One verdict; a check that found several things has several.

    ``permission`` is what is missing for a check that is unknown, ``fix`` what `doctor --fix` would do.
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
    fix: str | None = None
    expires: str | None = None


def judge(
    checks: Iterable[Check],
    facts: Mapping[str, Any],
    draft: Draft | None,
    skip: Collection[str] = (),
) -> tuple[Result, ...]:
    """Let each check judge its fact; the worst come first, otherwise in the order of the checks.

    Args:
        checks: those to run; one whose reader is not in ``facts`` was not asked for and is left out.
        facts: what each reader brought, or an `Unknown`.
        draft: the resolved spec, None where there is none.
        skip: ids that are told as skipped, with what they would have looked for.
    """
    found = [result for check in checks for result in _results(check, facts, draft, skip)]
    return tuple(sorted(found, key=lambda result: STATUSES.index(result.status)))


def _results(
    check: Check, facts: Mapping[str, Any], draft: Draft | None, skip: Collection[str]
) -> Iterator[Result]:
    if check.reads == SPEC:
        if draft is None:
            return
    elif check.reads not in facts or (check.needs_spec and draft is None):
        return
    if check.id in skip:
        yield _skipped(check)
        return
    fact = facts.get(check.reads)
    if isinstance(fact, Unknown):
        yield _unknown(check, fact)
        return
    notes = list(check.look(draft) if check.reads == SPEC else check.look(fact, draft))
    yield from (_told(check, note, draft) for note in notes)
    if not notes:
        yield Result(check.id, "ok", "", check.what, check.why, source=check.source, url=check.url)


def _told(check: Check, note: Note, draft: Draft | None) -> Result:
    status: Status = "ok" if note.severity == "info" else note.severity
    return Result(
        check.id,
        status,
        note.message,
        check.what,
        check.why,
        note.next_step or check.remedy,
        check.source,
        check.url,
        fix=_fix(check, draft) if status != "ok" else None,
        expires=note.expires.isoformat() if note.expires else None,
    )


def _fix(check: Check, draft: Draft | None) -> str | None:
    if check.fix is None:
        return None
    if check.fix.edits is not None and (draft is None or not check.fix.edits(draft)):
        return None
    return check.fix.what


def _skipped(check: Check) -> Result:
    message = f"skipped; it looks for this: {check.what} {check.why}"
    return Result(check.id, "skipped", message, check.what, check.why, source=check.source, url=check.url)


def _unknown(check: Check, fact: Unknown) -> Result:
    step = (
        f"Ask for the permission {fact.permission}, or look yourself: {check.remedy}"
        if fact.permission
        else f"Look yourself: {check.remedy}"
    )
    return Result(
        check.id,
        "unknown",
        fact.reason,
        check.what,
        check.why,
        step,
        check.source,
        check.url,
        permission=fact.permission,
    )
