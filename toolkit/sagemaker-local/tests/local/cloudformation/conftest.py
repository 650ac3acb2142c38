from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.local.cloudformation.world import World


@pytest.fixture
def world() -> Iterator[World]:
    created = World()
    yield created
    for gate in created.cloud.gates.values():
        gate.set()
    asyncio.run(created.service.close())
