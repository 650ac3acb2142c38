"""The local clock."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from sagemaker_local.clock import LocalClock

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_it_is_real_time_plus_what_it_was_advanced() -> None:
    clock = LocalClock(lambda: NOON)
    assert clock.now() == NOON
    assert clock.advance(7200) == NOON + timedelta(hours=2)
    clock.advance(0.5)
    assert clock.now() == NOON + timedelta(seconds=7200.5)
    assert clock.ahead_seconds == 7200.5


def test_it_says_utc_whatever_the_wall_says() -> None:
    clock = LocalClock(lambda: NOON.astimezone(timezone(timedelta(hours=9))))
    assert clock.now() == NOON
    assert clock.now().utcoffset() == timedelta(0)


def test_it_never_goes_back() -> None:
    with pytest.raises(ValueError, match="only goes forward: found -1 s"):
        LocalClock().advance(-1)
