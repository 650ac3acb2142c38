"""While metrics work, an unused endpoint costs no more than idle + grace + two sweeps.

Where CloudWatch writes no zeros for requests, their longest delay comes on top.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from peagle_guard.evidence import REQUEST_LAG
from peagle_guard.sweeper import sweep
from tests.guard.fake_aws import MINUTE, SETTINGS, START, FakeAws

SWEEP = 5 * MINUTE


@settings(max_examples=40, deadline=None)
@given(
    idle=st.integers(5, 90),
    grace=st.integers(10, 40),
    last_s=st.integers(0, 3600),
    phase_s=st.integers(0, 299),
    zeros=st.booleans(),
    stack=st.booleans(),
)
def test_the_waste_is_bounded(
    idle: int, grace: int, last_s: int, phase_s: int, zeros: bool, stack: bool
) -> None:
    aws = FakeAws()
    owner = "Peagle-chat" if stack else ""
    aws.add("chat", max_lifetime_hours="100", stack=owner, idle_minutes=str(idle), grace_minutes=str(grace))
    # The spec's own rule: idle and grace are at least 15 minutes together.
    idle = max(idle, 15 - grace)
    last = START + timedelta(seconds=last_s)
    aws.traffic_points("chat", START, last + timedelta(seconds=1))
    metrics_end = last + timedelta(seconds=1)
    now = START + timedelta(seconds=phase_s)
    while not aws.deeds:
        whole = now.replace(second=0, microsecond=0)
        aws.idle_points("chat", _next_minute(metrics_end), whole, zeros=zeros)
        metrics_end = max(metrics_end, whole - timedelta(microseconds=1))
        aws.now = now
        assert sweep(aws, SETTINGS, now).failures == ()
        assert now < last + timedelta(hours=6), "never turned off"
        now += SWEEP
    off = aws.deeds[0][0]
    late = timedelta() if zeros else REQUEST_LAG
    assert off - last <= (idle + grace) * MINUTE + late + 2 * SWEEP
    # Never early: idle is counted in whole minutes.
    assert off - last >= (idle + grace - 1) * MINUTE
    assert aws.notices[0][0] <= off - grace * MINUTE


def _next_minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0) + MINUTE
