"""Clients of the one local server of a test run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.local.serving import Server


@pytest.fixture
def sagemaker(server: Server) -> Any:
    return server.client("sagemaker")


@pytest.fixture
def runtime(server: Server) -> Any:
    return server.client("sagemaker-runtime")
