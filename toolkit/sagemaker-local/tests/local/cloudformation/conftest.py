from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.local.cloudformation.world import World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    for gate in made.cloud.gates.values():
        gate.set()
    asyncio.run(made.service.close())
