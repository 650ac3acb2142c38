"""Install, update and remove the guard: its bucket, its package and its CloudFormation stack.

`StackWork` follows a stack event by event until it no longer changes, and names the first cause of a
failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control import stacks
from peagle_sm.aws.control.stacks import StackEvent, StackFacts
from peagle_sm.aws.session.errors import is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from peagle_sm.core import guard
from peagle_sm.core.errors import NotFound, PlanRefused, ServiceFault
from peagle_sm.core.guard import GuardPrice, guard_price
from peagle_sm.core.plan.payloads import partition
from peagle_sm.service.guard.status import GuardFiles, shipped
from peagle_sm.service.inventory.resources import is_ours
from peagle_sm.service.progress import Pacing, Progress, Reporter

Wanted = Literal["CREATE_COMPLETE", "UPDATE_COMPLETE", "DELETE_COMPLETE"]
TIMEOUT_S = 1800.0
_CONSEQUENCES = ("cancelled", "canceled", "the following resource(s) failed")
"""Events that only repeat that something else failed."""


class StackWork:
    """One operation on one stack: remembers the events that were there before it began."""

    def __init__(self, session: Session, name: str, pacing: Pacing, report: Reporter) -> None:
        """Begin with nothing seen."""
        self._session = session
        self._name = name
        self._pacing = pacing
        self._report = report
        self._seen: set[str] = set()
        self._failed: list[StackEvent] = []

    def remember(self, stack_id: str) -> None:
        """Take the stack's history so far as known."""
        self._seen.update(event.event_id for event in stacks.events(self._session, stack_id))

    def settle(self, stack_id: str) -> StackFacts | None:
        """Wait until nothing moves in the stack any more, telling its events; None when it is gone.

        Raises:
            ServiceFault: it still moves after half an hour.
        """
        deadline = self._pacing.monotonic() + TIMEOUT_S
        while True:
            facts = self._look(stack_id)
            if facts is None or not facts.moving:
                return facts
            if self._pacing.monotonic() > deadline:
                raise ServiceFault(
                    f"The stack {self._name} is still {facts.status} after {TIMEOUT_S / 60:.0f} minutes.",
                    operation="DescribeStacks",
                    code="Timeout",
                    next_step="Look at its events in the CloudFormation console; then run the command again.",
                )
            self._pacing.sleep(self._pacing.poll_s if self._session.is_local else 3.0)

    def reach(self, stack_id: str, wanted: Wanted) -> None:
        """Wait until the stack stands where it should.

        Raises:
            ServiceFault: it stands elsewhere; the message has the first reason that its events give.
        """
        facts = self.settle(stack_id)
        status = stacks.GONE if facts is None else facts.status
        if status == wanted:
            return
        cause = first_cause(self._failed)
        reason = cause.reason if cause else (facts.reason if facts else None)
        what = f" ({cause.logical_id}, {cause.resource_type})" if cause else ""
        raise ServiceFault(
            f"The stack {self._name} is {status}: {reason or 'AWS gives no reason'}{what}.",
            operation="CloudFormation",
            code=status,
            next_step=_remedy(reason or "", self._session.command_flags()),
            details={"stack": self._name, "status": status, "resource": cause.logical_id if cause else None},
        )

    def _look(self, stack_id: str) -> StackFacts | None:
        try:
            facts = stacks.describe(self._session, stack_id)
            self._tell(stack_id)
        except ServiceFault as error:
            if not is_unsettled(error):
                raise
            # A call that got no answer says nothing about the stack: look again.
            return StackFacts(self._name, stack_id, "UNKNOWN_IN_PROGRESS")
        return None if facts is None or facts.status == stacks.GONE else facts

    def _tell(self, stack_id: str) -> None:
        fresh: list[StackEvent] = []
        for event in stacks.events(self._session, stack_id):
            if event.event_id in self._seen:
                break
            fresh.append(event)
        for event in reversed(fresh):
            self._seen.add(event.event_id)
            if "FAILED" in event.status:
                self._failed.append(event)
            if event.status.endswith("_IN_PROGRESS") and event.logical_id != self._name:
                continue  # half of all lines, and each is followed by what came of it
            said = f"{event.logical_id} {event.status}"
            if event.reason and "FAILED" in event.status:
                said += f": {event.reason}"
            self._report("stack", said, status=event.status, resource=event.logical_id)


def first_cause(failed: Iterable[StackEvent]) -> StackEvent | None:
    """Return the first failure, in order of time, that is not the consequence of another one."""
    for event in failed:
        said = (event.reason or "").lower()
        if said and not any(words in said for words in _CONSEQUENCES):
            return event
    return None


def _remedy(reason: str, flags: str) -> str:
    if "UnreservedConcurrentExecution" in reason:
        return (
            "This account's quota of concurrent Lambda executions leaves none to reserve: run "
            f"`peagle-sm guard install --no-reserve-concurrency{flags}`, or raise the quota "
            "(Service Quotas, Lambda)."
        )
    if "not authorized" in reason.lower() or "AccessDenied" in reason:
        return "Ask for the permission that the message names; docs/reference/stacks-guard.md lists them all."
    return "Mend what the message names and run the command again; it takes up what exists."


Action = Literal["created", "updated", "unchanged"]

EXPORTS = (
    guard.EXPORT_MODEL_PROVIDER,
    guard.EXPORT_LIFETIME_PROVIDER,
    guard.EXPORT_EXECUTION_ROLE,
    guard.EXPORT_SCHEDULER_ROLE,
    guard.EXPORT_NOTICES_TOPIC,
    guard.EXPORT_DEAD_LETTERS,
    guard.EXPORT_SWITCH,
)
_NEVER_STOOD = frozenset({"ROLLBACK_COMPLETE", "ROLLBACK_FAILED", "CREATE_FAILED", "DELETE_FAILED"})
"""A stack in these states can only be deleted; the guard's holds nothing that would be missed."""


@dataclass(frozen=True)
class GuardSettings:
    """What an installation may be told; None keeps what the last one was told, or the default.

    ``email`` is told before and after an endpoint is turned off. The containers may read
    ``model_buckets`` (names) and use ``endpoint_keys`` (ARNs); ``image_repository`` is the name of your own
    ECR repository, a * at its end allowed. ``encryption_key`` (ARN) encrypts what the guard itself keeps.
    """

    email: str | None = None
    model_buckets: tuple[str, ...] | None = None
    endpoint_keys: tuple[str, ...] | None = None
    encryption_key: str | None = None
    image_repository: str | None = None
    reserve_concurrency: bool | None = None

    def parameters(self, region: str) -> dict[str, str]:
        """Return the template's parameters that were told."""
        bucket_arns = None
        if self.model_buckets is not None:
            bucket_arns = ",".join(f"arn:{partition(region)}:s3:::{name}" for name in self.model_buckets)
        reserve = {None: None, True: "yes", False: "no"}[self.reserve_concurrency]
        told = {
            "NoticesEmail": self.email,
            "ModelBucketArns": bucket_arns,
            "EndpointKeyArns": None if self.endpoint_keys is None else ",".join(self.endpoint_keys),
            "EncryptionKeyArn": self.encryption_key,
            "ImageRepository": self.image_repository,
            "ReserveConcurrency": reserve,
        }
        return {name: value for name, value in told.items() if value is not None}


@dataclass(frozen=True)
class InstallPlan:
    """What an installation would do; shown before it asks. ``price`` is AWS's; locally nothing is paid."""

    account: str
    region: str
    bucket: str
    version: str
    update: bool
    price: GuardPrice
    email: str | None
    local: bool = False


@dataclass(frozen=True)
class InstallReport:
    """What an installation did. ``outputs`` are the stack's."""

    action: Action
    plan: InstallPlan
    package: str
    outputs: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "stack": guard.GUARD_STACK,
            "action": self.action,
            "account": self.plan.account,
            "region": self.plan.region,
            "version": self.plan.version,
            "package": self.package,
            "bucket": self.plan.bucket,
            "usd_per_month": round(self.plan.price.usd_per_month, 2),
            "usd_per_month_per_variant": round(self.plan.price.per_variant.usd, 2),
            "price_source": self.plan.price.source,
            "outputs": dict(self.outputs),
        }


@dataclass(frozen=True)
class UninstallReport:
    """What a removal did; ``unguarded`` are the endpoints of ours that go on running without a guard."""

    region: str
    bucket_removed: bool
    unguarded: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "stack": guard.GUARD_STACK,
            "region": self.region,
            "bucket_removed": self.bucket_removed,
            "unguarded": list(self.unguarded),
        }


def install(
    session: Session,
    settings: GuardSettings | None = None,
    *,
    confirm: Callable[[InstallPlan], bool] = lambda plan: True,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
    guard_files: GuardFiles | None = None,
) -> InstallReport | None:
    """Install the guard, or bring it up to this version; None when ``confirm`` declines.

    Raises:
        PlanRefused: the stack was made by the CDK, which must update it too.
        ServiceFault: AWS refused, or the stack did not come up; nothing billable of note is left.
        CredentialsError: a permission is missing.
    """
    wanted, sent = settings or GuardSettings(), guard_files or shipped()
    pace = pacing or Pacing.for_session(session)
    report = Reporter(progress, pace)
    work = StackWork(session, guard.GUARD_STACK, pace, report)
    account = session.account()
    existing = _standing(session, work)
    plan = InstallPlan(
        account=account,
        region=session.region,
        bucket=guard.asset_bucket(account, session.region),
        version=sent.version,
        update=existing is not None,
        price=guard_price(),
        email=wanted.email or (existing.parameters.get("NoticesEmail") if existing else None) or None,
        local=session.is_local,
    )
    if not confirm(plan):
        return None
    _upload(session, plan.bucket, sent, report)
    action = _apply(session, work, existing, _request(session, plan, sent, wanted, existing))
    made = stacks.describe(session, guard.GUARD_STACK)
    report("done", f"the guard of {session.region} is {action}", resource=guard.GUARD_STACK)
    return InstallReport(action, plan, sent.digest, made.outputs if made else {})


def _standing(session: Session, work: StackWork) -> StackFacts | None:
    """Return the stack as it stands; one that never stood is taken away first."""
    found = stacks.describe(session, guard.GUARD_STACK)
    if found is not None and found.moving:
        work.remember(found.stack_id)
        found = work.settle(found.stack_id)
    if found is None or found.status == stacks.GONE:
        return None
    if found.status == "REVIEW_IN_PROGRESS" or found.status in _NEVER_STOOD:
        work.remember(found.stack_id)
        stacks.delete(session, guard.GUARD_STACK)
        work.reach(found.stack_id, "DELETE_COMPLETE")
        return None
    if "AssetKey" not in found.parameters:
        raise PlanRefused(
            f"The stack {guard.GUARD_STACK} in {session.region} was deployed by the CDK.",
            next_step=f"Update it where it came from: `cdk deploy {guard.GUARD_STACK}`.",
            details={"findings": [], "stack": guard.GUARD_STACK, "found": found.status},
        )
    return found


def _upload(session: Session, bucket: str, sent: GuardFiles, report: Reporter) -> None:
    if not s3.exists(session, bucket):
        s3.create(session, bucket)
        report("stack", f"bucket {bucket} created", resource=bucket)
    s3.secure(session, bucket)
    if s3.put_if_absent(session, bucket, sent.key, sent.archive()):
        report("stack", f"package {sent.digest} uploaded", resource=sent.key)


def _request(
    session: Session, plan: InstallPlan, sent: GuardFiles, wanted: GuardSettings, existing: StackFacts | None
) -> dict[str, Any]:
    told = {**wanted.parameters(session.region), "AssetBucket": plan.bucket, "AssetKey": sent.key}
    parameters: list[dict[str, Any]] = [
        {"ParameterKey": name, "ParameterValue": value} for name, value in sorted(told.items())
    ]
    # An omitted parameter falls back to its default: what was told at the last installation is kept.
    kept = set(existing.parameters if existing else ()) & sent.parameter_names - set(told)
    parameters += [{"ParameterKey": name, "UsePreviousValue": True} for name in sorted(kept)]
    return {
        "StackName": guard.GUARD_STACK,
        "TemplateBody": sent.template,
        "Parameters": parameters,
        "Capabilities": ["CAPABILITY_NAMED_IAM"],
        "Tags": [{"Key": "peagle-sm:part", "Value": "guard"}],
    }


def _apply(session: Session, work: StackWork, existing: StackFacts | None, request: dict[str, Any]) -> Action:
    if existing is None:
        work.reach(stacks.create(session, request), "CREATE_COMPLETE")
        return "created"
    work.remember(existing.stack_id)
    if not stacks.update(session, request):
        return "unchanged"
    work.reach(existing.stack_id, "UPDATE_COMPLETE")
    return "updated"


def uninstall(
    session: Session,
    *,
    leave_unguarded: bool = False,
    confirm: Callable[[Sequence[str]], bool] = lambda unguarded: True,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
) -> UninstallReport | None:
    """Remove the guard and its bucket; None when ``confirm`` (given what stays unguarded) declines.

    Raises:
        NotFound: no guard is installed there.
        PlanRefused: endpoint stacks need it, or endpoints of ours would run without it.
        ServiceFault: AWS refused; run it again.
    """
    pace = pacing or Pacing.for_session(session)
    report = Reporter(progress, pace)
    found = stacks.describe(session, guard.GUARD_STACK)
    if found is None or found.status == stacks.GONE:
        raise NotFound(
            f"No guard is installed in {session.region}.",
            next_step=f"Check the region and the account: {session.region}, {session.account()}.",
        )
    _refuse_while_imported(session)
    running = _ours(session)
    if running and not leave_unguarded:
        raise PlanRefused(
            f"Endpoints of peagle-sm still run in {session.region}: {', '.join(running)}. Without the guard "
            "nobody turns them off, and their lifetime limits end with its role.",
            next_step=f"Delete them first: `peagle-sm delete {' '.join(running)}{session.command_flags()}`. "
            "To leave them running and billed without any limit: --yes-leave-endpoints-unguarded.",
            details={"findings": [], "endpoints": running},
        )
    if not confirm(running):
        return None
    work = StackWork(session, guard.GUARD_STACK, pace, report)
    work.remember(found.stack_id)
    stacks.delete(session, guard.GUARD_STACK)
    work.reach(found.stack_id, "DELETE_COMPLETE")
    removed = _remove_bucket(session, report)
    report("done", f"the guard of {session.region} is removed", resource=guard.GUARD_STACK)
    return UninstallReport(session.region, removed, tuple(running))


def _refuse_while_imported(session: Session) -> None:
    using = stacks.importers(session, EXPORTS)
    if using:
        raise PlanRefused(
            f"CloudFormation keeps the guard's stack while others import from it: {', '.join(using)}.",
            next_step=f"Destroy them first: `cdk destroy {' '.join(using)} -c spec=FILE`, each with its "
            "spec. They may be turned off already; "
            "their stacks still need the guard to be turned on again.",
            details={"findings": [], "stacks": using},
        )


def _ours(session: Session) -> list[str]:
    return sorted(
        one.name
        for one in control.list_endpoints(session)
        if one.status != "Deleting" and is_ours(control.tags_of(session, one.arn))
    )


def _remove_bucket(session: Session, report: Reporter) -> bool:
    bucket = guard.asset_bucket(session.account(), session.region)
    if not s3.exists(session, bucket):
        return False
    removed = s3.remove(session, bucket, "guard/")
    report("stack", f"bucket {bucket} {'removed' if removed else 'stays: it holds more'}", resource=bucket)
    return removed
