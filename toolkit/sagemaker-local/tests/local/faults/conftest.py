"""An endpoint of the tests of faults, and faults that go with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sagemaker_local.process import client
from tests.local.serving import Server

Add = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def endpoint(server: Server) -> str:
    return server.deploy()


@pytest.fixture
def add(server: Server, endpoint: str) -> Iterator[Add]:
    """Sets a fault on the endpoint; the faults of a test go with it."""
    set_here: list[str] = []

    def call(kind: str, **options: Any) -> dict[str, Any]:
        added = client.add_fault(server.status.port, {"kind": kind, "endpoint": endpoint, **options})
        set_here.append(added["id"])
        return added

    yield call
    for each in client.faults(server.status.port):
        if each["id"] in set_here:
            client.clear_faults(server.status.port, [each["id"]])
