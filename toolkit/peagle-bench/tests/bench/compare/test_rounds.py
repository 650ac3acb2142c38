"""Deployments that are interrupted: what was made is named, with what became of it."""

from __future__ import annotations

from typing import Any

import pytest

from peagle_bench.compare.deployments import deployed_rounds
from peagle_sm.core.errors import BillableLeft, Interrupted
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.endpoint_spec import Mode as SpecMode
from tests.service.fakes import FakeAws, lost
from tests.service.setting import make_spec, pacing_of, session_of


class Aws(FakeAws):
    """Ctrl-C comes when all are up and the first is looked at: its price is asked for then."""

    def client(self, service: str, **more: Any) -> Any:
        return Prices(self) if service == "pricing" else super().client(service, **more)


class Prices:
    """Client of an empty price list, which is interrupted when the first endpoint is looked at."""

    def __init__(self, aws: FakeAws) -> None:
        self.aws = aws

    def get_paginator(self, operation: str) -> Any:
        return self

    def paginate(self, **asked: Any) -> list[dict[str, Any]]:
        if "DescribeModel" in self.aws.calls:  # only a look at an endpoint reads its model
            assert len(self.aws.endpoints) == 2
            raise KeyboardInterrupt
        return []


SPECS: dict[SpecMode, EndpointSpec] = {
    "none": make_spec("cmp-none", speculation={"mode": "none"}, head_uri=None),
    "p-eagle": make_spec("cmp-p-eagle"),
}


def interrupted(aws: FakeAws) -> BaseException:
    (one,) = deployed_rounds([SPECS], session_of(aws), unguarded=True, pacing=pacing_of(aws))
    with pytest.raises((Interrupted, BillableLeft)) as caught:
        one.__enter__()
    return caught.value


def test_ctrl_c_names_every_endpoint_and_that_all_are_gone() -> None:
    aws = Aws()
    error = interrupted(aws)
    assert str(error) == "Interrupted; deleted, so that nothing is billed: cmp-none, cmp-p-eagle"
    assert isinstance(error, Interrupted)
    assert error.details["deleted"] == ["cmp-none", "cmp-p-eagle"]
    assert not aws.endpoints


def test_what_cannot_be_deleted_is_not_said_to_be_gone() -> None:
    aws = Aws()

    def lose(_: FakeAws, number: int, operation: str) -> None:
        if operation == "DeleteEndpoint":
            raise lost(operation)

    aws.before = lose
    error = interrupted(aws)
    assert isinstance(error, BillableLeft)
    assert error.details["resources"] == ["endpoint/cmp-none", "endpoint/cmp-p-eagle"]
