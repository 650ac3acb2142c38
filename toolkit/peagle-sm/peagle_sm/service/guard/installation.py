"""Installation, update and removal of the guard.

The guard has a bucket, a package and a CloudFormation stack. `StackWork` follows a stack event by event
until it no longer changes, and reports the first cause of a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control import stacks
from peagle_sm.aws.control.stacks import StackEvent, StackFacts
from peagle_sm.aws.session.errors import is_unsettled
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from peagle_sm.core import guard
from peagle_sm.core.errors import NotFound, PlanRefused, ServiceFault, SpecError
from peagle_sm.core.guard import GuardPrice, guard_price
from peagle_sm.core.plan.tags_and_schedules import partition
from peagle_sm.core.spec.validation import suggest
from peagle_sm.service.guard.status import GuardFiles, shipped
from peagle_sm.service.inventory.resources import is_ours
from peagle_sm.service.progress import Pacing, Progress, Reporter

Wanted = Literal["CREATE_COMPLETE", "UPDATE_COMPLETE", "DELETE_COMPLETE"]
TIMEOUT_S = 1800.0
_CONSEQUENCES = ("cancelled", "canceled", "the following resource(s) failed")
"""Words of events that only repeat another resource's failure."""


class StackWork:
    """One operation on one stack; reports only the events since it began."""

    def __init__(self, session: Session, name: str, pacing: Pacing, report: Reporter) -> None:
        """Start with no known events."""
        self._session = session
        self._name = name
        self._pacing = pacing
        self._report = report
        self._seen: set[str] = set()
        self._failed: list[StackEvent] = []

    def remember(self, stack_id: str) -> None:
        """Mark the stack's past events as known, so that they are not reported."""
        self._seen.update(event.event_id for event in stacks.events(self._session, stack_id))

    def settle(self, stack_id: str) -> StackFacts | None:
        """Wait until the stack is stable and report its events; None when it is gone.

        Raises:
            ServiceFault: it still changes after half an hour.
        """
        deadline = self._pacing.monotonic() + TIMEOUT_S
        while True:
            facts = self._describe(stack_id)
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
        """Wait until the stack has the wanted status.

        Raises:
            ServiceFault: it has another status; the message has the first failure reason of its events.
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
            next_step=_next_step(reason or "", self._session.command_flags()),
            details={"stack": self._name, "status": status, "resource": cause.logical_id if cause else None},
        )

    def _describe(self, stack_id: str) -> StackFacts | None:
        try:
            facts = stacks.describe(self._session, stack_id)
            self._report_events(stack_id)
        except ServiceFault as error:
            if not is_unsettled(error):
                raise
            # Without an answer the stack's status is unknown: retry.
            return StackFacts(self._name, stack_id, "UNKNOWN_IN_PROGRESS")
        return None if facts is None or facts.status == stacks.GONE else facts

    def _report_events(self, stack_id: str) -> None:
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
                continue  # half of all events; each is followed by its result
            message = f"{event.logical_id} {event.status}"
            if event.reason and "FAILED" in event.status:
                message += f": {event.reason}"
            self._report("stack", message, status=event.status, resource=event.logical_id)


def first_cause(failed: Iterable[StackEvent]) -> StackEvent | None:
    """Return the first failure that is not the consequence of another failure."""
    for event in failed:
        reason = (event.reason or "").lower()
        if reason and not any(words in reason for words in _CONSEQUENCES):
            return event
    return None


def _next_step(reason: str, flags: str) -> str:
    if "UnreservedConcurrentExecution" in reason:
        return (
            "The account's quota of concurrent Lambda executions leaves nothing to reserve. Run "
            f"`peagle-sm guard install --parameter ReserveConcurrency=no{flags}`, or raise the quota "
            "(Service Quotas, Lambda)."
        )
    if "not authorized" in reason.lower() or "AccessDenied" in reason:
        return "Ask for the permission that the message names; `peagle-sm help stacks-guard` lists them all."
    return "Fix the cause above and run the command again; it resumes from what already exists."


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
"""A stack with one of these statuses can only be deleted; the guard's stack holds no data to lose."""


def bucket_arns(region: str, buckets: Iterable[str]) -> str:
    """Return the value of ModelBucketArns for the names of buckets."""
    return ",".join(f"arn:{partition(region)}:s3:::{name}" for name in buckets)


def _check_parameters(given: Mapping[str, str], sent: GuardFiles) -> None:
    allowed = sorted(sent.parameter_names - {"AssetBucket", "AssetKey"})
    for name in given:
        if name not in allowed:
            raise SpecError(
                f"unknown parameter of the guard's template {name!r}; allowed: {', '.join(allowed)}."
                f"{suggest(name, allowed)}",
                next_step="Correct --parameter; `peagle-sm help stacks-guard` describes each.",
            )


@dataclass(frozen=True)
class InstallPlan:
    """Plan of an installation, shown before the prompt; ``price`` is that on AWS."""

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
    """Result of an installation; ``outputs`` are the stack's outputs."""

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
    """Result of a removal; ``unguarded`` endpoints now run without a guard."""

    region: str
    bucket_removed: bool
    unguarded: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {"stack": guard.GUARD_STACK, **asdict(self)}


def install(
    session: Session,
    parameters: Mapping[str, str] | None = None,
    *,
    confirm: Callable[[InstallPlan], bool] = lambda plan: True,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
    guard_files: GuardFiles | None = None,
) -> InstallReport | None:
    """Install the guard or update it to this version; None when ``confirm`` declines.

    ``parameters`` of the template that are not given keep the installed value, or the default.

    Raises:
        SpecError: the template has no such parameter.
        PlanRefused: the CDK created the stack, so the CDK must update it.
        ServiceFault: AWS refused, or the stack failed; almost nothing that is left is billed.
        CredentialsError: a permission is missing.
    """
    wanted, sent = parameters or {}, guard_files or shipped()
    _check_parameters(wanted, sent)
    pace = pacing or Pacing.for_session(session)
    report = Reporter(progress, pace)
    work = StackWork(session, guard.GUARD_STACK, pace, report)
    account = session.account()
    existing = _existing_stack(session, work)
    plan = InstallPlan(
        account=account,
        region=session.region,
        bucket=guard.asset_bucket(account, session.region),
        version=sent.version,
        update=existing is not None,
        price=guard_price(),
        email=wanted.get("NoticesEmail")
        or (existing.parameters.get("NoticesEmail") if existing else None)
        or None,
        local=session.is_local,
    )
    if not confirm(plan):
        return None
    _upload(session, plan.bucket, sent, report)
    action = _apply(session, work, existing, _request(plan, sent, wanted, existing))
    stack = stacks.describe(session, guard.GUARD_STACK)
    report("done", f"the guard in {session.region} is {action}", resource=guard.GUARD_STACK)
    return InstallReport(action, plan, sent.digest, stack.outputs if stack else {})


def _existing_stack(session: Session, work: StackWork) -> StackFacts | None:
    """Return the existing stack; first delete one whose creation failed."""
    stack = stacks.describe(session, guard.GUARD_STACK)
    if stack is not None and stack.moving:
        work.remember(stack.stack_id)
        stack = work.settle(stack.stack_id)
    if stack is None or stack.status == stacks.GONE:
        return None
    if stack.status == "REVIEW_IN_PROGRESS" or stack.status in _NEVER_STOOD:
        work.remember(stack.stack_id)
        stacks.delete(session, guard.GUARD_STACK)
        work.reach(stack.stack_id, "DELETE_COMPLETE")
        return None
    if "AssetKey" not in stack.parameters:
        raise PlanRefused(
            f"The stack {guard.GUARD_STACK} in {session.region} was deployed by the CDK.",
            next_step=f"Update it with the CDK: `cdk deploy {guard.GUARD_STACK}`.",
            details={"findings": [], "stack": guard.GUARD_STACK, "found": stack.status},
        )
    return stack


def _upload(session: Session, bucket: str, sent: GuardFiles, report: Reporter) -> None:
    if not s3.exists(session, bucket):
        s3.create(session, bucket)
        report("stack", f"bucket {bucket} created", resource=bucket)
    s3.secure(session, bucket)
    if s3.put_if_absent(session, bucket, sent.key, sent.archive()):
        report("stack", f"package {sent.digest} uploaded", resource=sent.key)


def _request(
    plan: InstallPlan, sent: GuardFiles, wanted: Mapping[str, str], existing: StackFacts | None
) -> dict[str, Any]:
    given = {**wanted, "AssetBucket": plan.bucket, "AssetKey": sent.key}
    parameters: list[dict[str, Any]] = [
        {"ParameterKey": name, "ParameterValue": value} for name, value in sorted(given.items())
    ]
    # An omitted parameter would fall back to its default, so the installed values are kept explicitly.
    kept = set(existing.parameters if existing else ()) & sent.parameter_names - set(given)
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
    """Remove the guard and its bucket; None when ``confirm`` declines.

    Raises:
        NotFound: no guard is installed in this region.
        PlanRefused: endpoint stacks need it, or endpoints created by peagle-sm would run without it.
        ServiceFault: AWS refused; run it again.
    """
    pace = pacing or Pacing.for_session(session)
    report = Reporter(progress, pace)
    stack = stacks.describe(session, guard.GUARD_STACK)
    if stack is None or stack.status == stacks.GONE:
        raise NotFound(
            f"No guard is installed in {session.region}.",
            next_step=f"Check the region ({session.region}) and the account ({session.account()}).",
        )
    _refuse_while_imported(session)
    running = _running_endpoints(session)
    if running and not leave_unguarded:
        raise PlanRefused(
            f"Endpoints of peagle-sm still run in {session.region}: {', '.join(running)}. Without the guard "
            "nothing turns them off: their lifetime schedules use the guard's role and stop working, too.",
            next_step=f"Delete them first: `peagle-sm delete {' '.join(running)}{session.command_flags()}`. "
            "To leave them running and billed without any limit, add --yes-leave-endpoints-unguarded.",
            details={"findings": [], "endpoints": running},
        )
    if not confirm(running):
        return None
    work = StackWork(session, guard.GUARD_STACK, pace, report)
    work.remember(stack.stack_id)
    stacks.delete(session, guard.GUARD_STACK)
    work.reach(stack.stack_id, "DELETE_COMPLETE")
    removed = _remove_bucket(session, report)
    report("done", f"the guard in {session.region} is removed", resource=guard.GUARD_STACK)
    return UninstallReport(session.region, removed, tuple(running))


def _refuse_while_imported(session: Session) -> None:
    using = stacks.importers(session, EXPORTS)
    if using:
        raise PlanRefused(
            "CloudFormation does not delete the guard's stack while other stacks import from it: "
            f"{', '.join(using)}.",
            next_step=f"Destroy these stacks first: `cdk destroy {' '.join(using)} -c spec=FILE`, each with "
            "its spec. A stack whose endpoint is off needs the guard, too: to turn the endpoint on again.",
            details={"findings": [], "stacks": using},
        )


def _running_endpoints(session: Session) -> list[str]:
    return sorted(
        endpoint.name
        for endpoint in control.list_endpoints(session)
        if endpoint.status != "Deleting" and is_ours(control.tags_of(session, endpoint.arn))
    )


def _remove_bucket(session: Session, report: Reporter) -> bool:
    bucket = guard.asset_bucket(session.account(), session.region)
    if not s3.exists(session, bucket):
        return False
    removed = s3.remove(session, bucket, "guard/")
    report("stack", f"bucket {bucket} {'removed' if removed else 'kept: not empty'}", resource=bucket)
    return removed
