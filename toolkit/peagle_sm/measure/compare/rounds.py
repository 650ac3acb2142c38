"""The deployments to measure, one after the other: each is a context that has its arms up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import Interrupted
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.endpoint_spec import Mode as SpecMode
from peagle_sm.measure.compare.arms import Named, called, describe
from peagle_sm.measure.compare.fleet import Fleet
from peagle_sm.measure.endpoint_arm import Described, demand_mode, describe_endpoint
from peagle_sm.service import Pacing
from peagle_sm.service.events import Progress

Round = AbstractContextManager[Sequence[Described]]


def existing_rounds(arms: Sequence[Named], session_of: Callable[[], Session]) -> list[Round]:
    """Endpoints that are there already, and stay.

    Raises:
        PeagleError: one of them cannot be measured.
    """
    by_arm = [describe(arm, session_of) for arm in arms]
    return [nullcontext(list(one)) for one in zip(*by_arm, strict=True)]


def deployed_rounds(
    specs: Sequence[Mapping[SpecMode, EndpointSpec]],
    session: Session,
    *,
    unguarded: bool,
    progress: Progress | None = None,
    pacing: Pacing | None = None,
) -> list[Round]:
    """A deployment of every spec in each round, deleted before the next one comes up."""
    return [
        _deployed(one, number, session, unguarded=unguarded, progress=progress, pacing=pacing)
        for number, one in enumerate(specs, start=1)
    ]


@contextmanager
def _deployed(
    specs: Mapping[SpecMode, EndpointSpec],
    number: int,
    session: Session,
    *,
    unguarded: bool,
    progress: Progress | None,
    pacing: Pacing | None,
) -> Iterator[Sequence[Described]]:
    named = {str(mode): spec for mode, spec in specs.items()}
    fleet = Fleet(named, session, unguarded=unguarded, progress=progress, pacing=pacing)
    try:
        with fleet:
            arms = []
            for mode, spec in specs.items():
                found = demand_mode(describe_endpoint(session, spec.name), mode)
                one = called(found, mode, number)
                arms.append(replace(one, arm=replace(one.arm, deployment=str(number))))
            yield arms
    except (KeyboardInterrupt, Interrupted) as error:
        # Had one of them not been proven gone, the fleet would have raised BillableLeft.
        raise _all_gone(error, [named[mode].name for mode in fleet.endpoints]) from error


def _all_gone(error: BaseException, names: Sequence[str]) -> BaseException:
    """The interruption, with the endpoints that were made and are not there any more."""
    if not names:
        return error
    said = error.message.rstrip(".") if isinstance(error, Interrupted) else "Interrupted"
    details = error.details if isinstance(error, Interrupted) else {}
    return Interrupted(
        f"{said}; deleted, with nothing left that is billed: {', '.join(names)}",
        next_step=error.next_step if isinstance(error, Interrupted) else None,
        details={**details, "deleted": [*details.get("deleted", []), *names]},
    )
