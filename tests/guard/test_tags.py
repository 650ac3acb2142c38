"""Whose endpoint it is, and what its tags ask for; a bad tag neither kills nor frees an endpoint."""

from __future__ import annotations

from datetime import timedelta

import pytest

from peagle_guard.records import Lifecycle, is_ours, lifecycle_from_tags
from peagle_guard.settings import SettingsError, load, time_of
from tests.guard.by_hand import START, tags_for

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def test_ours_is_what_names_this_very_endpoint() -> None:
    assert is_ours("chat", tags_for("chat"))
    assert not is_ours("chat2", tags_for("chat"))
    assert not is_ours("chat", {"peagle-sm:managed-by": "peagle-sm"})
    assert not is_ours("chat", {"peagle-sm:endpoint": "chat"})


def test_tags_are_read() -> None:
    lifecycle = lifecycle_from_tags(
        tags_for(
            "chat",
            idle_minutes="30",
            grace_minutes="12",
            max_lifetime_hours="2.5",
            budget_usd="500",
            usd_per_hour="113.93",
            hours="Mon-Fri 08:00-19:00 Europe/Berlin",
            stack="Peagle-chat",
            idle="scale-to-zero",
            publish_seconds="300",
        )
    )
    assert (lifecycle.idle, lifecycle.grace, lifecycle.max_lifetime) == (30 * MINUTE, 12 * MINUTE, 2.5 * HOUR)
    assert (lifecycle.budget_usd, lifecycle.usd_per_hour) == (500.0, 113.93)
    assert (
        lifecycle.price_at_most,
        lifecycle_from_tags({"peagle-sm:price-bound": "at-most"}).price_at_most,
    ) == (
        False,
        True,
    )
    assert lifecycle.hours is not None
    assert lifecycle.publish == 5 * MINUTE
    assert (lifecycle.owner, lifecycle.scales_to_zero, lifecycle.faults) == ("stack:Peagle-chat", True, ())
    assert lifecycle_from_tags({}) == Lifecycle()


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "-1", "0", "1e9"])
def test_a_tag_that_cannot_be_read_falls_back_to_its_default_and_is_told(text: str) -> None:
    lifecycle = lifecycle_from_tags(tags_for("chat", max_lifetime_hours=text))
    assert lifecycle.max_lifetime == Lifecycle().max_lifetime
    assert len(lifecycle.faults) == 1
    assert repr(text) in lifecycle.faults[0]


def test_idle_and_grace_never_are_less_than_the_schema_allows() -> None:
    assert lifecycle_from_tags(tags_for("chat", grace_minutes="1")).grace == 10 * MINUTE
    assert lifecycle_from_tags(tags_for("chat", idle_minutes="1")).idle == 60 * MINUTE
    short = lifecycle_from_tags(tags_for("chat", idle_minutes="5", grace_minutes="10"))
    assert short.idle + short.grace == 15 * MINUTE
    assert lifecycle_from_tags(tags_for("chat", idle_minutes="1e300")).idle == 8760 * HOUR


def test_a_bad_timetable_is_told_and_not_kept() -> None:
    lifecycle = lifecycle_from_tags(tags_for("chat", hours="Mo-Fr 8-19"))
    assert lifecycle.hours is None
    assert "peagle-sm:hours" in lifecycle.faults[0]


# --- settings -----------------------------------------------------------------------------------------

ENVIRONMENT = {
    "PEAGLE_TABLE": "t",
    "PEAGLE_TOPIC_ARN": "t",
    "PEAGLE_SWITCH_FUNCTION": "s",
    "PEAGLE_LIFETIME_FUNCTION": "l",
    "PEAGLE_SCHEDULER_ROLE_ARN": "r",
    "PEAGLE_DEAD_LETTERS_ARN": "d",
}


def test_the_environment_is_checked_once() -> None:
    assert load(ENVIRONMENT).table == ENVIRONMENT["PEAGLE_TABLE"]
    with pytest.raises(SettingsError, match="not set: PEAGLE_TABLE, PEAGLE_TOPIC_ARN"):
        load({**ENVIRONMENT, "PEAGLE_TABLE": "", "PEAGLE_TOPIC_ARN": ""})


def test_an_events_time() -> None:
    for text in ("2026-11-16T08:00:00Z", "2026-11-16T09:00:00+01:00", "2026-11-16T08:00:00"):
        assert time_of(text) == START
    assert time_of("<aws.scheduler.scheduled-time>") is time_of(None) is None


@pytest.mark.parametrize("stack", ["Peagle-other", "Peagle-", "Peagle-chat2", "peagle-chat", "production"])
def test_a_stack_of_another_name_is_not_believed_and_is_reported(stack: str) -> None:
    lifecycle = lifecycle_from_tags(tags_for("chat", stack=stack))
    assert (lifecycle.stack, lifecycle.owner) == (None, "direct")
    assert lifecycle.faults == (
        f"tag peagle-sm:stack: found {stack!r}; allowed: 'Peagle-chat'; "
        "the endpoint is turned off without a stack",
    )
