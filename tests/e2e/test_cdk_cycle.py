"""The whole cycle of the stacks by the real `cdk`, with the real engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cdk_cycle import Cycle
from tests.e2e.cdk_world import local_server

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]


def test_from_an_empty_account_to_an_endpoint_and_back(tmp_path: Path) -> None:
    with local_server(tmp_path) as port:
        cycle = Cycle(tmp_path, port, print)
        cycle.run()

    assert [step.name for step in cycle.steps][-1] == "cdk destroy, both stacks"
