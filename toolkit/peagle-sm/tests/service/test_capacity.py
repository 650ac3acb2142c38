"""When AWS has no such instance left: pools, and attempts within bounds."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from peagle_sm.service import Pacing, delete, deploy
from peagle_sm.service.lifecycle.deployment import NoCapacity
from tests.faults.wire import Script
from tests.faults.world import Place, World
from tests.local.serving import Server

FIRST, SECOND = "ml.g6e.12xlarge", "ml.g5.12xlarge"
_numbers = itertools.count(1)


@pytest.fixture
def world(server: Server) -> Iterator[World]:
    """A world as on AWS, whose dearer type is short."""
    created = World(Place(server), f"short-{next(_numbers)}")
    created.place.short(FIRST, 0)
    created.at_once = True
    yield created
    created.place.short(FIRST, None)
    created.place.short(SECOND, None)
    created.clear()


def _deploy(world: World, pacing: Pacing | None = None, types: tuple[str, ...] = (FIRST,)) -> None:
    spec = world.spec(placement={"instance_types": list(types)})
    deploy(spec, session=world.session(Script()), pacing=pacing or world.pacing, unguarded=True)


def _described(world: World) -> dict[str, Any]:
    endpoint: dict[str, Any] = world.place.sagemaker.describe_endpoint(EndpointName=world.name)
    return endpoint


def test_the_next_type_in_order_of_preference_is_taken(world: World) -> None:
    world.at_once = False
    _deploy(world, types=(FIRST, SECOND))
    (variant,) = _described(world)["ProductionVariants"]
    assert [(pool["InstanceType"], pool["CurrentInstanceCount"]) for pool in variant["InstancePools"]] == [
        (FIRST, 0),
        (SECOND, 1),
    ]


def test_it_is_tried_again_and_comes_up_when_there_are_some(world: World) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if waits.count(300.0) == 2:
            world.place.short(FIRST, None)
            world.at_once = False
        world.sleep(seconds)

    _deploy(world, replace(world.pacing, sleep=sleep))
    assert waits.count(300.0) == 2
    assert _described(world)["EndpointStatus"] == "InService"


def test_when_all_are_short_nothing_is_left(world: World) -> None:
    world.place.short(SECOND, 0)
    with pytest.raises(NoCapacity) as caught:
        _deploy(world, types=(FIRST, SECOND))
    error = caught.value
    assert error.exit_code == 7
    assert error.message == (
        f"AWS has no capacity of {FIRST} or {SECOND} in us-east-1: 3 attempts to create endpoint "
        f"{world.name} failed, 5 minutes apart."
    )
    assert error.details["instance_types"] == [FIRST, SECOND]
    assert "another region" in (error.next_step or "")
    assert world.found().nothing
    assert world.seconds < 900


def test_a_short_endpoint_is_not_what_delete_or_a_second_deploy_stumbles_over(world: World) -> None:
    with pytest.raises(NoCapacity):
        _deploy(world)
    world.place.short(FIRST, None)
    world.at_once = False
    _deploy(world)
    delete([world.name], session=world.session(Script()), pacing=world.pacing)
    assert world.found().nothing
