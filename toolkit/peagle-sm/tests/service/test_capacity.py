"""When AWS has no such instance left: pools, and a clean-up."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from peagle_sm.core.errors import EndpointFailed
from peagle_sm.service import delete, deploy
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


def _deploy(world: World, types: tuple[str, ...] = (FIRST,)) -> None:
    spec = world.spec(placement={"instance_types": list(types)})
    deploy(spec, session=world.session(Script()), pacing=world.pacing, unguarded=True)


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


def test_when_all_are_short_nothing_is_left_and_a_second_deploy_works(world: World) -> None:
    world.place.short(SECOND, 0)
    with pytest.raises(EndpointFailed) as caught:
        _deploy(world, types=(FIRST, SECOND))
    assert caught.value.exit_code == 7
    step = caught.value.next_step or ""
    assert "placement.instance_types" in step
    assert "capacity reservation" in step
    assert world.found().nothing
    world.place.short(FIRST, None)
    world.at_once = False
    _deploy(world)
    delete([world.name], session=world.session(Script()), pacing=world.pacing)
    assert world.found().nothing
