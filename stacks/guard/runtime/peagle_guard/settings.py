"""Settings of the Lambdas from their environment, and the current time."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime

_CLOCK = "PEAGLE_LOCAL_CLOCK_URL"


class SettingsError(Exception):
    """Error: the Lambda's environment is not as the guard's stack sets it."""


@dataclass(frozen=True)
class Settings:
    """Settings of the Lambdas, from variables PEAGLE_<NAME>; only the local SageMaker has ``clock_url``."""

    table: str
    topic_arn: str
    switch_function: str
    lifetime_function: str
    scheduler_role_arn: str
    dead_letters_arn: str
    clock_url: str | None = None


def load(environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from the environment.

    Raises:
        SettingsError: a variable is missing.
    """
    variables = os.environ if environment is None else environment
    by_field = {
        each.name: f"PEAGLE_{each.name.upper()}" for each in fields(Settings) if each.name != "clock_url"
    }
    missing = [name for name in by_field.values() if not variables.get(name)]
    if missing:
        raise SettingsError(f"not set: {', '.join(missing)}. Deploy PeagleGuard again: its stack sets them.")
    values = {field: variables[name] for field, name in by_field.items()}
    return Settings(**values, clock_url=variables.get(_CLOCK) or None)


def time_of(text: object) -> datetime | None:
    """Return an ISO time of an event, a tag or an item (aware, UTC); None if it is missing or invalid."""
    try:
        return parse_time(text) if isinstance(text, str) else None
    except (ValueError, OverflowError):
        return None


def parse_time(text: str) -> datetime:
    """Read an ISO time; without an offset it is UTC.

    Raises:
        ValueError: the text is not an ISO time.
    """
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def now(settings: Settings) -> datetime:
    """Return the current time for events without a time (custom resources): the system's clock.

    The local SageMaker has its own clock, on which its schedules run, and sets its URL.
    """
    if settings.clock_url is None:
        return datetime.now(UTC)
    # The local SageMaker's own address, set by its server; AWS never sets it.
    with urllib.request.urlopen(settings.clock_url, timeout=10) as answer:
        return parse_time(str(json.load(answer)["now"]))
