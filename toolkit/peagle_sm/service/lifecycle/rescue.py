"""After a failure or Ctrl-C: clean up, or say exactly what is left and what ends it."""

from __future__ import annotations

from contextlib import suppress
from typing import NoReturn

from peagle_sm.aws.control import logs
from peagle_sm.core.errors import BillableLeft, EndpointFailed, Interrupted, PeagleError
from peagle_sm.service.lifecycle.bringup import Run
from peagle_sm.service.lifecycle.handover import leave_to_the_schedule
from peagle_sm.service.lifecycle.teardown import LocalServerGone, Removed, Teardown

LOG_LINES = 20


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
        return [line.message for line in logs.tail(run.session, run.name, LOG_LINES, run.began_at)]
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
