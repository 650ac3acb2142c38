"""Clean-up after a deploy or a resume that failed or was interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from peagle_sm.aws.control import cloudwatch
from peagle_sm.core.errors import BillableLeft, EndpointFailed, Interrupted, PeagleError
from peagle_sm.service.inventory.resources import ToRemove
from peagle_sm.service.lifecycle.creation import Run
from peagle_sm.service.lifecycle.teardown import (
    LOG_LINES,
    LocalServerGone,
    Removed,
    Teardown,
    leave_to_the_schedule,
)


def rescue(run: Run, cause: BaseException) -> NoReturn:
    """Clean up after ``cause`` and raise the error for the caller.

    Raises:
        Interrupted: Ctrl-C, and nothing billable is left.
        BillableLeft: AWS did not confirm that the endpoint is gone, or a second Ctrl-C ended the wait.
        LocalServerGone: the local SageMaker has ended, so there is nothing to clean up.
        PeagleError: ``cause`` itself, after a complete clean-up.
    """
    run.report.quiet = True  # a callback that raises must not stop a clean-up
    interrupted = isinstance(cause, KeyboardInterrupt)
    try:
        if isinstance(cause, EndpointFailed):
            cause.details["log_tail"] = _log_tail(run)
        run.report(
            "interrupted" if interrupted else "failed",
            "interrupted: cleaning up; another Ctrl-C leaves this to the lifetime schedule"
            if interrupted
            else f"failed: {cause}; cleaning up",
        )
        removed = _remove_with_companions(run)
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
        removed = Removed(left={schedule.label: left.message for schedule in reversed(run.schedules)})
    if interrupted:
        _raise_interrupted(run, removed)
    _raise_cause(run, cause, removed)


def _remove_with_companions(run: Run) -> Removed:
    companions: Sequence[ToRemove] = ()
    with suppress(PeagleError):  # the caller deletes them afterwards, too
        companions = run.companions()
    teardown = Teardown(run.session, run.pacing, run.report)
    outcomes = dict(teardown.run_all([run.resources, *companions], unsettled=run.unsettled))
    outcome = outcomes[run.name]
    if isinstance(outcome, BillableLeft):
        raise outcome
    return outcome


def _raise_interrupted(run: Run, gone: Removed) -> NoReturn:
    if not gone.left:
        raise Interrupted(
            f"Interrupted: everything that this run created for {run.name} was deleted.",
            details={"deleted": gone.deleted, "left": []},
        ) from None
    raise Interrupted(
        f"Interrupted: no endpoint is left, but {', '.join(gone.left)} could not be deleted (no cost).",
        next_step=_undo_command(run),
        details={"deleted": gone.deleted, "left": sorted(gone.left)},
    ) from None


def _raise_cause(run: Run, cause: BaseException, gone: Removed) -> NoReturn:
    if isinstance(cause, PeagleError):
        cause.details |= {"deleted": gone.deleted, "left": sorted(gone.left)}
        if gone.left:
            cause.next_step = (
                f"{cause.next_step or ''} Remaining, at no hourly cost: {', '.join(sorted(gone.left))}; "
                f"delete them with `{_undo_command(run)}`."
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
        return "Free some space on the disk named above, and deploy again."
    if "capacity" in lowered:
        return "Add other placement.instance_types, or use another region or a capacity reservation."
    if "limit" in lowered or "quota" in lowered:
        return "Raise the quota '<type> for endpoint usage' in the Service Quotas console."
    if "rolled back" in lowered:
        return "Run the deploy again; nothing of this attempt is left."
    return "Read the engine's last lines above (details.log_tail), correct the spec, and deploy again."
