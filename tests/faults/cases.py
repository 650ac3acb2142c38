"""The use cases of the matrix: how each begins, what it does, and what it must come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import EndpointFailed, NotFound
from peagle_sm.service import delete, deploy, pause, resume, update
from peagle_sm.service.lifecycle.deployment import NoCapacity
from tests.faults.wire import KINDS, Kind, Script
from tests.faults.world import Found, World

# Where the guard's register cannot be written, a deletion goes on; at worst the guard tries to wake what is
# gone, and fails.
# A token that expires at the call before leaves the same.
_REGISTER: frozenset[tuple[str, Kind]] = frozenset(
    [*(("dynamodb:DeleteItem", kind) for kind in KINDS), ("monitoring:DeleteAlarms", "expired token")]
)
# They pause and resume all the same, and the progress reports it; the guard finds out by itself.
_NOTES: frozenset[tuple[str, Kind]] = frozenset(
    (f"dynamodb:{call}", kind) for call in ("GetItem", "UpdateItem") for kind in ("denied", "expired token")
)
# Once the endpoint serves, a mark of the pause that cannot be removed is reported and stops nothing.
_MARKS: frozenset[tuple[str, Kind]] = frozenset(("sagemaker:DeleteTags", kind) for kind in KINDS)
# No other test deploys on it.
SHORT_TYPE = "ml.g6e.12xlarge"
BROKEN = {"SCRIPT_EXIT_LINE": "ValueError: no such head"}


@dataclass(frozen=True)
class Case:
    """``arrived`` tells what is wrong with a state that should be the goal; empty when nothing is.

    ``settled`` are errors by which a run says that there is nothing to do, or that the goal is a failure.
    The calls up to the first ``after`` are another use case's too, and tried there. ``tolerated``: call and
    fault after which something free of charge may stay that nobody is told of; see
    `docs/reference/faults-matrix.md`.
    """

    name: str
    what: str
    prepare: Callable[[World], None]
    act: Callable[[World, Session], Any]
    arrived: Callable[[World, Found], str]
    settled: tuple[type[Exception], ...] = ()
    after: str | None = None
    tolerated: frozenset[tuple[str, Kind]] = frozenset()


def _nothing(world: World) -> None:
    return


def _deploy(world: World, session: Session) -> None:
    deploy(world.spec(), session=session, pacing=world.pacing)


def _deploy_broken(world: World, session: Session) -> None:
    deploy(world.spec(env=BROKEN), session=session, pacing=world.pacing)


def _short(world: World) -> None:
    world.place.short(SHORT_TYPE, 0)
    world.at_once = True  # nothing starts that could be held back


def _deploy_short(world: World, session: Session) -> None:
    deploy(world.spec(placement={"instance_types": [SHORT_TYPE]}), session=session, pacing=world.pacing)


def serves(world: World, found: Found) -> str:
    """In service with one config, armed, and nothing left over."""
    if found.status != "InService":
        return f"the endpoint is {found.status}"
    if found.armed_until is None or found.armed_until <= world.now():
        return f"its lifetime limit is {found.armed_until}"
    if found.configs != (found.config,) or len(found.models) != 1:
        return f"configs {found.configs}, models {found.models}, runs {found.config}"
    if found.paused or found.paused_configs:
        return "it still counts as paused"
    return ""


def gone(world: World, found: Found) -> str:
    if not found.nothing:
        return f"left: {found}"
    return "the guard's register still knows it" if found.registered else ""


def cleaned(world: World, found: Found) -> str:
    return "" if found.nothing else f"left: {found}"


def rests(world: World, found: Found) -> str:
    if found.status is not None or found.armed_until is not None:
        return f"endpoint {found.status}, limit {found.armed_until}"
    if len(found.configs) != 1 or len(found.models) != 1 or found.paused_configs != found.configs:
        return f"what brings it back is not whole: {found}"
    return "" if found.paused else "the guard's register does not say paused"


def _running(world: World) -> None:
    world.create(world.spec())
    world.register()


def _resting(world: World) -> None:
    _running(world)
    pause(world.name, session=world.session(Script()), pacing=world.pacing)


def _pause(world: World, session: Session) -> None:
    pause(world.name, session=session, pacing=world.pacing)


def _resume(world: World, session: Session) -> None:
    resume(world.name, session=session, pacing=world.pacing)


def _changed(world: World, **env: str) -> Any:
    return world.spec(speculation={"mode": "p-eagle", "num_speculative_tokens": 5}, env=env)


def _update(world: World, session: Session) -> None:
    update(_changed(world), session=session, pacing=world.pacing, strategy="in-place")


def _update_broken(world: World, session: Session) -> None:
    update(_changed(world, **BROKEN), session=session, pacing=world.pacing, strategy="in-place")


def _off_update_on(world: World, session: Session) -> None:
    update(_changed(world), session=session, pacing=world.pacing, strategy="off-update-on")


def updated(world: World, found: Found) -> str:
    wanted = world.plan(_changed(world)).names.config
    return serves(world, found) or ("" if found.config == wanted else f"it runs {found.config}, not {wanted}")


def as_before(world: World, found: Found) -> str:
    wanted = world.plan(world.spec()).names.config
    return serves(world, found) or ("" if found.config == wanted else f"it runs {found.config}, not {wanted}")


def _delete(world: World, session: Session) -> None:
    delete([world.name], session=session, pacing=world.pacing)


CASES = (
    Case("deploy", "nothing is there", _nothing, _deploy, serves),
    Case(
        "deploy-failing",
        "the engine does not come up: it is cleaned up",
        _nothing,
        _deploy_broken,
        cleaned,
        (EndpointFailed,),
        after="sagemaker:CreateEndpoint",
    ),
    Case(
        "deploy-short",
        "AWS has no such instance left, three times in a row",
        _short,
        _deploy_short,
        cleaned,
        (NoCapacity,),
        after="sagemaker:CreateEndpoint",
    ),
    Case("pause", "it serves", _running, _pause, rests, tolerated=_NOTES),
    Case("resume", "it is paused", _resting, _resume, serves, tolerated=_NOTES | _MARKS),
    Case("update", "another K, in place", _running, _update, updated, tolerated=_NOTES),
    Case(
        "update-rolled-back",
        "in place, and the new engine does not come up",
        _running,
        _update_broken,
        as_before,
        (EndpointFailed,),
        after="sagemaker:UpdateEndpoint",
    ),
    Case("update-off-on", "another K, off-update-on", _running, _off_update_on, updated, tolerated=_NOTES),
    Case("delete", "it serves", _running, _delete, gone, (NotFound,), tolerated=_REGISTER),
)
