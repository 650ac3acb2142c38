"""Options of `peagle-sm serve --record`: the plan is shown, confirmed and started here."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeVar

import click

from peagle_sm.cli.base import State
from peagle_sm.cli.console import confirmed, need_terminal, note, show_offer, to_json
from peagle_sm.core.errors import Declined, SpecError

if TYPE_CHECKING:
    from peagle_sm.service import EndpointStatus
    from peagle_sm.traffic.plan import RecordingPlan
    from peagle_sm.traffic.recorder import Recorder, TrafficSource

Function = TypeVar("Function", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--record",
        metavar="FILE",
        help="Write prompts and answers to this file, with secrets redacted. Off unless given.",
    ),
    click.option(
        "--sample",
        type=float,
        default=None,
        help="With --record: share of the requests to record, above 0, at most 1.  [default: 1]",
    ),
    click.option(
        "--keep-days",
        metavar="DAYS",
        default=None,
        help="With --record: delete records after this many days, or `forever`.  [default: 30]",
    ),
    click.option("--yes", "-y", is_flag=True, help="With --record: do not ask for confirmation."),
)


def recording_options(command: Function) -> Function:
    """Add the options of a recording to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def recording_plan(
    state: State,
    record: str | None,
    sample: float | None,
    keep_days: str | None,
    yes: bool,
) -> tuple[RecordingPlan, bool] | None:
    """Return the checked plan and whether it is confirmed; None without --record.

    Raises:
        SpecError: an option is invalid, or given without --record; or nobody could be asked.
    """
    if record is None:
        given = {"--sample": sample, "--keep-days": keep_days}
        for name, value in given.items():
            if value is not None:
                raise SpecError(
                    f"{name} belongs to --record, which was not given", next_step="add --record FILE"
                )
        return None
    from peagle_sm.traffic.plan import KEEP_DAYS, planned
    from peagle_sm.traffic.worker import need_library

    plan = planned(
        record,
        sample=1.0 if sample is None else sample,
        keep_days=KEEP_DAYS if keep_days is None else keep_days,
    )
    need_terminal(state, yes, "peagle-sm serve --help")
    need_library()
    return plan, yes


def source_of(name: str, component: str | None, status: EndpointStatus | None) -> TrafficSource:
    """Describe the endpoint for the records."""
    from peagle_sm.traffic.recorder import TrafficSource, mode_of

    if status is None:
        return TrafficSource(name, component)
    return TrafficSource(name, component, status.model_name, mode_of(status.summary.mode))


def start_recording(state: State, planned: tuple[RecordingPlan, bool], source: TrafficSource) -> Recorder:
    """Show what will be recorded, ask, and start.

    Raises:
        Declined: the answer was no.
        SpecError, NotFound: the file cannot be used, or a package is not installed.
    """
    from peagle_sm.traffic.plan import start

    plan, yes = planned
    rows = plan.rows()
    width = max(len(name) for name, _ in rows)
    below = " " * (width + 4)
    text = "\n".join(
        fill(f"  {name:<{width}}  {value}", 80, subsequent_indent=below, break_on_hyphens=False)
        for name, value in rows
    )
    show_offer(state, yes, f"Recording of {source.endpoint}:\n{text}", {"recording": plan.to_dict()})
    if not confirmed(state, "Record this traffic?", yes):
        raise Declined("Nothing is recorded and nothing was started.")
    return start(plan, source, on_problem=lambda message: note(state, f"warning: {message}"))


def end_recording(state: State, recorder: Recorder) -> None:
    """Write what waits, and print how much was recorded and lost."""
    summary = recorder.close()
    if state.format == "json":
        click.echo(to_json({"recording": summary.to_dict()}, indent=None), err=True)
    else:
        note(state, f"{summary.line()}; in {recorder.target.describe()}")
