"""ListEndpoints and DescribeEndpoint may differ in rounding and in the ARN's case; it is one endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from peagle_guard.aws import Page, same_arn, same_time
from peagle_guard.records import Endpoint
from peagle_guard.sweeper import sweep
from tests.guard.by_hand import HOUR, MINUTE, START, AwsByHand
from tests.guard.simulator.people import SETTINGS

SECOND = timedelta(seconds=1)


class RoundedAws(AwsByHand):
    """An AWS whose list is rounded to seconds and shows ARNs in another case than the description."""

    rounding = timedelta(milliseconds=400)

    def list_endpoints(self, token: str | None) -> Page[Endpoint]:
        page = super().list_endpoints(token)
        return Page(tuple(self._rounded(row) for row in page.items), page.token)

    def endpoint_tags(self, arn: str) -> Mapping[str, str]:
        return super().endpoint_tags(arn.lower())

    def _rounded(self, row: Endpoint) -> Endpoint:
        return replace(
            row,
            arn=row.arn.upper(),
            created_at=row.created_at - self.rounding,
            modified_at=row.modified_at - self.rounding,
        )


def test_times_are_equal_within_one_second() -> None:
    assert same_time(START, START + SECOND)
    assert same_time(START + SECOND, START)
    assert not same_time(START, START + SECOND + timedelta(milliseconds=1))
    assert not same_time(None, START)
    assert not same_time(None, None)
    assert same_arn(
        "arn:aws:sagemaker:eu-west-1:1:endpoint/Chat", "arn:aws:sagemaker:eu-west-1:1:endpoint/chat"
    )
    assert not same_arn(
        "arn:aws:sagemaker:eu-west-1:1:endpoint/chat", "arn:aws:sagemaker:eu-west-1:1:endpoint/chat2"
    )


@pytest.mark.parametrize("stack", ["", "Peagle-chat"])
def test_an_idle_endpoint_is_turned_off_although_the_list_rounds(stack: str) -> None:
    aws = RoundedAws(START)
    aws.add(idle_minutes="15", max_lifetime_hours="100", stack=stack)
    for _ in range(24):
        aws.now += 5 * MINUTE
        assert sweep(aws, SETTINGS, aws.now).failures == ()
    assert aws.did == ["stack-off" if stack else "delete"]
    assert aws.calls["DescribeEndpoint"] <= 5


def test_an_endpoint_created_later_under_the_same_name_is_another_one() -> None:
    aws = RoundedAws(START)
    aws.add("chat", idle_minutes="15", max_lifetime_hours="2")
    sweep(aws, SETTINGS, aws.now)
    aws.now += HOUR
    aws.remove("chat")
    aws.add(idle_minutes="15", max_lifetime_hours="2")
    aws.now += 1.5 * HOUR
    sweep(aws, SETTINGS, aws.now)
    assert aws.deeds == []
    assert aws.register.records["chat"].created_at == START + HOUR
