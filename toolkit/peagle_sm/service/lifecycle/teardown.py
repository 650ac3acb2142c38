"""Delete an endpoint's resources in the order that bounds the bill, and prove that they are gone.

Delete the endpoint, wait until it is gone, then the config and the model. The lifetime schedule goes last,
when the endpoint is proven gone: it would delete the endpoint if this process died on the way. `rescue`
cleans up after a failure or Ctrl-C, or says exactly what remains and what ends it. `leave_to_the_schedule`
hands over to the lifetime schedule where the user does not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Literal, NoReturn

from peagle_sm.aws.control import cloudwatch, lifetime
from peagle_sm.aws.control import sagemaker as control
from peagle_sm.aws.control.sagemaker import component_names, delete_component
from peagle_sm.aws.control.stacks import stack_status
from peagle_sm.aws.session.errors import is_refused_connection, is_refused_now
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import (
    BillableLeft,
    EndpointFailed,
    EngineError,
    Interrupted,
    NotFound,
    PeagleError,
    ServiceFault,
)
from peagle_sm.core.plan.payloads import schedule_name
from peagle_sm.service.inventory.resources import ToRemove, belongs_to, stack_of
from peagle_sm.service.progress import Pacing, Phase, Reporter

PLAIN_ATTEMPTS = 5
SETTLING_LOOKS = 4
# A local server that restarts on its port is back by then; one that is gone stays gone.
LOCAL_PATIENCE_S = 5.0
_NOT_DELETABLE = frozenset({"Creating", "Updating", "SystemUpdating", "RollingBack"})


class LocalServerGone(EngineError):
    """Nobody listens where the local SageMaker was; its engines end with it, and it never costs anything."""


@dataclass
class Removed:
    """What was deleted and what would not go (name -> why), as "kind/name"."""

    deleted: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)


class Teardown:
    """One removal; ``phase`` is what its events are called.

    ``gone_stacks`` are stacks that no longer exist: their tag counts as no tag. Each is looked up again
    before something of it goes, since somebody may have deployed it again.
    """

    def __init__(
        self,
        session: Session,
        pacing: Pacing,
        report: Reporter,
        phase: Phase = "cleanup",
        gone_stacks: Collection[str] = (),
    ) -> None:
        self._session = session
        self._gone_stacks = gone_stacks
        self._pacing = pacing
        self._report = report
        self._phase = phase
        self._known_ours: set[str] = set()
        self._refused_since: float | None = None

    def run(self, to_remove: ToRemove, *, unsettled: bool = False) -> Removed:
        """Delete everything in ``to_remove`` that carries our tags.

        ``unsettled``: a CreateEndpoint may still be on its way, so absence must be seen several times.

        Raises:
            BillableLeft: the endpoint could not be proven gone; its schedule is then still armed.
            LocalServerGone: the local SageMaker has ended.
        """
        gone = Removed()
        self.remove_endpoint(to_remove.endpoint, gone, looks=SETTLING_LOOKS if unsettled else 1)
        self.remove_free(to_remove, gone)
        session, owner = self._session, to_remove.endpoint
        if to_remove.schedules:
            # Without its config no late CreateEndpoint can succeed: this look is final.
            self.remove_endpoint(owner, gone)
        for name in to_remove.schedules:
            self._remove_plain(
                f"schedule/{name}",
                gone,
                partial(self._guards, name, owner),
                partial(lifetime.remove, session, name),
            )
        return gone

    def remove_free(self, to_remove: ToRemove, gone: Removed) -> None:
        """Delete configs and models, which cost nothing, and leave endpoint and schedules alone.

        Raises:
            LocalServerGone: the local SageMaker has ended.
        """
        session, owner = self._session, to_remove.endpoint
        for name in to_remove.configs:
            self._remove_plain(
                f"endpoint-config/{name}",
                gone,
                partial(self._is_owned, control.describe_endpoint_config, name, owner),
                partial(control.delete_endpoint_config, session, name),
            )
        for name in to_remove.models:
            self._remove_plain(
                f"model/{name}",
                gone,
                partial(self._is_owned, control.describe_model, name, owner),
                partial(control.delete_model, session, name),
            )

    def remove_endpoint(self, name: str, gone: Removed, *, looks: int = 1) -> None:
        """Ask for deletion, again and again while AWS refuses, until the endpoint is not there.

        A deletion may answer 200 and do nothing, so only DescribeEndpoint counts.

        Raises:
            BillableLeft: not proven gone in time, or AWS cannot be asked.
            LocalServerGone: the local SageMaker has ended.
        """
        deadline = self._pacing.monotonic() + self._pacing.delete_timeout_s
        seen, absent, why, status = False, 0, "", "unknown"
        while True:
            try:
                facts = control.describe_endpoint(self._session, name)
                self._refused_since, why = None, ""
                if facts is None or not self._is_ours(facts.arn, str(facts.created_at), name):
                    absent += 1
                    if absent >= looks:
                        break
                else:
                    seen, absent, status = True, 0, facts.status
                    if status != "Deleting":
                        self._delete_endpoint(name)
            except NotFound as error:
                why = error.message  # most likely gone since it was described; look again
            except PeagleError as error:
                why = error.message
                if not is_refused_now(error):
                    raise billable_left(self._session, name, why) from error
                self._give_up_on_a_server_that_is_gone(error)
            if seen:
                self._report(
                    self._phase,
                    f"waiting for endpoint {name} to be deleted" + _reason(status, why),
                    status=status,
                    resource=f"endpoint/{name}",
                )
            if self._pacing.monotonic() >= deadline:
                raise billable_left(self._session, name, why or f"still {status}")
            self._pacing.sleep(self._pacing.poll_s)
        if seen and f"endpoint/{name}" not in gone.deleted:
            gone.deleted.append(f"endpoint/{name}")
            self._report(self._phase, f"endpoint {name} is gone", status="gone", resource=f"endpoint/{name}")

    def _delete_endpoint(self, name: str) -> None:
        try:
            control.delete_endpoint(self._session, name)
        except ServiceFault:
            if self._gone_stacks:  # refused while it has components, and no stack is left that deletes them
                for component in component_names(self._session, name):
                    delete_component(self._session, component)
            raise

    def _give_up_on_a_server_that_is_gone(self, error: PeagleError) -> None:
        url = self._session.local_url
        if url is None or not is_refused_connection(error):
            return
        now = self._pacing.monotonic()
        if self._refused_since is None:
            self._refused_since = now
        waited = now - self._refused_since
        if waited >= LOCAL_PATIENCE_S:
            raise LocalServerGone(
                local_server_gone(url),
                next_step="Start it with `peagle-sm local up --detach`, and run the command again.",
            ) from error
        self._report(
            self._phase,
            f"the local SageMaker at {url} does not answer; "
            f"asking for {LOCAL_PATIENCE_S - waited:.0f} s more",
        )

    def _is_ours(self, arn: str, created: str, endpoint: str) -> bool:
        # By ARN and creation time: a name may be taken by a new endpoint while we wait.
        key = f"{arn} {created}"
        if key not in self._known_ours and self._may_go(control.tags_of(self._session, arn), endpoint):
            self._known_ours.add(key)
        return key in self._known_ours

    def _is_owned(self, describe: Callable[[Session, str], Any], name: str, endpoint: str) -> bool:
        facts = describe(self._session, name)
        return facts is not None and self._may_go(control.tags_of(self._session, facts.arn), endpoint)

    def _may_go(self, tags: Mapping[str, str] | None, endpoint: str) -> bool:
        # What a stack owns goes by its stack: deleted behind its back, the next update would fail.
        stack = stack_of(tags)
        return belongs_to(tags, endpoint) and (stack is None or self._is_gone(stack))

    def _is_gone(self, stack: str) -> bool:
        return stack in self._gone_stacks and stack_status(self._session, stack) is None

    def _guards(self, name: str, endpoint: str) -> bool:
        found = lifetime.get(self._session, name)
        if found is None:
            return False
        if found.stack is None:
            return found.endpoint == endpoint
        return found.ends(endpoint) and self._is_gone(found.stack)

    def _remove_plain(
        self, resource: str, gone: Removed, is_there: Callable[[], bool], remove: Callable[[], None]
    ) -> None:
        why, sent = "", False
        for attempt in range(PLAIN_ATTEMPTS):
            if attempt:
                self._pacing.sleep(self._pacing.poll_s)
            try:
                there = is_there()
                self._refused_since = None
                if there:
                    sent = True
                    remove()
                    why = "it is still there after its deletion was accepted"
                    if is_there():
                        continue
                if sent:
                    gone.deleted.append(resource)
                    self._report(self._phase, f"deleted {resource}", resource=resource)
                return
            except NotFound as error:
                why = error.message
            except PeagleError as error:
                why = error.message
                if not is_refused_now(error):
                    break
                self._give_up_on_a_server_that_is_gone(error)
        gone.left[resource] = why
        self._report(self._phase, f"could not delete {resource}: {why}", resource=resource)


def _reason(status: str, why: str) -> str:
    if status in _NOT_DELETABLE:
        return f": SageMaker does not delete it while it is {status}"
    return f" ({why})" if why else ""


def remove_by_hand(session: Session, schedule: str) -> str:
    """Return the step that removes "schedule/name" for a caller who may not read it."""
    url, name = session.local_url, schedule.removeprefix("schedule/")
    place = f" --endpoint-url {url} --region {session.region}" if url else session.command_flags()
    return f"If it exists: `aws scheduler delete-schedule --name {name}{place}`."


def local_server_gone(url: str) -> str:
    """Return the words for a local SageMaker that has ended; its engines end with it."""
    return f"The local SageMaker at {url} is gone and everything it ran with it; nothing is billed."


def billable_left(session: Session, name: str, why: str, more: str = "") -> BillableLeft:
    """Return the error that names the endpoint which may go on costing, and the command that ends it."""
    return BillableLeft(
        f"Endpoint {name} may still be running and billed: {why}{more}",
        next_step=f"peagle-sm delete {name} --yes{session.command_flags()}",
        details={"resources": [f"endpoint/{name}"], "region": session.region},
    )


def leave_to_the_schedule(
    session: Session, name: str, pacing: Pacing, *, unsettled: bool = False, undo: str = "delete"
) -> NoReturn:
    """Bring the lifetime limit of endpoint ``name`` forward to now, and raise what remains.

    ``unsettled``: a CreateEndpoint may still be on its way, so absence proves nothing. ``undo`` is the
    command that finishes: delete, or pause where config and model are to stay.

    Raises:
        Interrupted: the endpoint is gone already, and only what costs nothing may be left; or the local
            SageMaker is gone, and everything with it.
        BillableLeft: it is not; ``next_step`` is the command that finishes.
    """
    try:
        limit = lifetime.get(session, schedule_name(name))
        if limit is None or not limit.ends(name):
            outlook = "; it has no lifetime limit"
        else:
            lifetime.bring_forward(session, limit, pacing.clock())
            outlook = "; its lifetime limit was brought forward to now and deletes it within about 10 minutes"
    except (PeagleError, KeyboardInterrupt) as error:
        end_with_the_local_server(session, error)
        outlook = "; its lifetime limit could not be brought forward and holds at its own time"
    gone = False
    try:
        gone = not unsettled and control.describe_endpoint(session, name) is None
    except (PeagleError, KeyboardInterrupt) as error:
        end_with_the_local_server(session, error)
    if gone:
        raise Interrupted(
            f"Interrupted: endpoint {name} is gone; its config, model or schedule may be left (free).",
            next_step=f"peagle-sm {undo} {name} --yes{session.command_flags()}",
            details={"left": ["endpoint-config", "model", "schedule"]},
        ) from None
    left = billable_left(session, name, "interrupted while cleaning up", outlook)
    left.next_step = f"peagle-sm {undo} {name} --yes{session.command_flags()}"
    raise left from None


def end_with_the_local_server(session: Session, error: BaseException) -> None:
    """After Ctrl-C: where nobody listens any more at the local SageMaker's address, nothing is left to end.

    Raises:
        Interrupted: it is so. On AWS a refused connection proves nothing.
    """
    if session.local_url is not None and is_refused_connection(error):
        raise Interrupted(
            f"Interrupted. {local_server_gone(session.local_url)}", details={"deleted": [], "left": []}
        ) from None


LOG_LINES = 20


@dataclass
class Run:
    """One endpoint that is brought up, by a deploy or a resume, and what a clean-up must know of it.

    ``to_remove`` is what a clean-up removes, and ``undo`` the command that finishes it by hand.
    ``may_exist``: an endpoint of ours may be there, so a clean-up that cannot ask AWS must say so.
    ``unsettled``: a CreateEndpoint was sent and its answer has not come.
    ``began_at``: when AWS says that the endpoint was created; None while it has not said.
    """

    name: str
    config: str
    to_remove: ToRemove
    undo: Literal["delete", "pause"]
    startup_timeout_s: float
    session: Session
    pacing: Pacing
    report: Reporter
    may_exist: bool = field(default=False, kw_only=True)
    unsettled: bool = field(default=False, kw_only=True)
    began_at: datetime | None = field(default=None, kw_only=True)


def rescue(run: Run, cause: BaseException) -> NoReturn:
    """Clean up after ``cause`` and raise what the caller must know.

    Raises:
        Interrupted: Ctrl-C, and nothing billable is left.
        BillableLeft: the endpoint could not be proven gone, or a second Ctrl-C ended the waiting.
        LocalServerGone: the local SageMaker has ended, and with it all that there was to clean up.
        PeagleError: ``cause`` itself, once everything is cleaned up.
    """
    run.report.quiet = True  # a callback that raises must not stop a clean-up
    interrupted = isinstance(cause, KeyboardInterrupt)
    try:
        if isinstance(cause, EndpointFailed):
            cause.details["log_tail"] = _log_tail(run)
        run.report(
            "interrupted" if interrupted else "failed",
            "interrupted: cleaning up; Ctrl-C again leaves it to the lifetime limit"
            if interrupted
            else f"failed: {cause}; cleaning up",
        )
        teardown = Teardown(run.session, run.pacing, run.report)
        gone = teardown.run(run.to_remove, unsettled=run.unsettled)
    except KeyboardInterrupt:
        leave_to_the_schedule(run.session, run.name, run.pacing, unsettled=run.unsettled, undo=run.undo)
    except LocalServerGone as ended:
        if interrupted:
            raise Interrupted(f"Interrupted. {ended.message}", details={"deleted": [], "left": []}) from None
        ended.details["cause"] = str(cause) or type(cause).__name__
        raise ended from _visible(cause)
    except BillableLeft as left:
        if run.may_exist:
            left.details["cause"] = str(cause) or type(cause).__name__
            left.next_step = _undo_command(run)
            raise left from _visible(cause)
        gone = Removed(left={f"schedule/{name}": left.message for name in run.to_remove.schedules})
    if interrupted:
        _raise_interrupted(run, gone)
    _raise_cause(run, cause, gone)


def _raise_interrupted(run: Run, gone: Removed) -> NoReturn:
    if not gone.left:
        raise Interrupted(
            f"Interrupted: what this run had created of {run.name} is deleted again.",
            details={"deleted": gone.deleted, "left": []},
        ) from None
    raise Interrupted(
        f"Interrupted; no endpoint is left, but {', '.join(gone.left)} could not be deleted (costs nothing).",
        next_step=_undo_command(run),
        details={"deleted": gone.deleted, "left": sorted(gone.left)},
    ) from None


def _raise_cause(run: Run, cause: BaseException, gone: Removed) -> NoReturn:
    if isinstance(cause, PeagleError):
        cause.details |= {"deleted": gone.deleted, "left": sorted(gone.left)}
        if gone.left:
            cause.next_step = (
                f"{cause.next_step or ''} Left, costing nothing: {', '.join(sorted(gone.left))}; "
                f"remove with `{_undo_command(run)}`."
            ).strip()
        elif cause.next_step is None:
            cause.next_step = _advice(run, str(cause.details.get("failure_reason", "")))
    raise cause


def _undo_command(run: Run) -> str:
    return f"peagle-sm {run.undo} {run.name} --yes{run.session.command_flags()}"


def _log_tail(run: Run) -> list[str]:
    with suppress(PeagleError):
        return [line.message for line in cloudwatch.tail(run.session, run.name, LOG_LINES, run.began_at)]
    return []


def _visible(cause: BaseException) -> BaseException | None:
    return None if isinstance(cause, KeyboardInterrupt) else cause


def _advice(run: Run, reason: str) -> str:
    lowered = reason.lower()
    if "no space left" in lowered:
        return "Free some space on the disk that the reason names, and deploy again."
    if "capacity" in lowered:
        return "Add further placement.instance_types, or use another region or a capacity reservation."
    if "limit" in lowered or "quota" in lowered:
        return "Raise the quota '<type> for endpoint usage' in the Service Quotas console."
    if "rolled back" in lowered:
        return "Run the deploy again; nothing of this attempt is left."
    return "Read the engine's last lines above (details.log_tail), correct the spec, and deploy again."
