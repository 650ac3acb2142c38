"""Deployments that are interrupted: what was made is named, with what became of it."""

from __future__ import annotations

import pytest

from peagle_bench.compare.deployments import deployed_rounds
from peagle_sm.core.errors import BillableLeft, Interrupted
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.modes import Mode as SpecMode
from tests.service.account import Account
from tests.service.aws_errors import lost
from tests.service.setting import make_spec

SPECS: dict[SpecMode, EndpointSpec] = {
    "none": make_spec("cmp-none", speculation={"mode": "none"}, head_uri=None),
    "p-eagle": make_spec("cmp-p-eagle"),
}


def interrupted(aws: Account, refused: str = "") -> BaseException:
    """Ctrl-C comes when both are up and the first is looked at: its model is read then."""

    def press(operation: str) -> BaseException | None:
        if operation == "DescribeModel" and "DeleteEndpoint" not in aws.calls:
            assert len(aws.names("endpoint")) == 2
            return KeyboardInterrupt()
        return lost(operation) if operation == refused else None

    aws.before = press
    (one,) = deployed_rounds([SPECS], aws.session(), unguarded=True, pacing=aws.pacing())
    with pytest.raises((Interrupted, BillableLeft)) as caught:
        one.__enter__()
    return caught.value


def test_ctrl_c_names_every_endpoint_and_that_all_are_gone(aws: Account) -> None:
    error = interrupted(aws)
    assert str(error) == "Interrupted; deleted, so that nothing is billed: cmp-none, cmp-p-eagle"
    assert isinstance(error, Interrupted)
    assert error.details["deleted"] == ["cmp-none", "cmp-p-eagle"]
    assert not aws.names("endpoint")


def test_what_cannot_be_deleted_is_not_said_to_be_gone(aws: Account) -> None:
    error = interrupted(aws, refused="DeleteEndpoint")
    assert isinstance(error, BillableLeft)
    assert error.details["resources"] == ["endpoint/cmp-none", "endpoint/cmp-p-eagle"]
