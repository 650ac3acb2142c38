"""The guard's version, health and sweeps.

`shipped` reads the template and makes the Lambdas' package that this version of peagle-sm installs.
`guard_status` compares the installed guard with it. `sweep` runs one sweep and returns its report.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from functools import cached_property
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from peagle_sm.aws.control import guard_resources, stacks
from peagle_sm.aws.control.guard_resources import Alarm, Subscription, Watched
from peagle_sm.aws.session.session import Session
from peagle_sm.core import guard
from peagle_sm.core.errors import NotFound, PeagleError, ServiceFault
from peagle_sm.core.guard import digest, object_key, package_files, zipped
from peagle_sm.service.inventory.guard_state import install_step
from peagle_sm.service.inventory.listing import plain
from peagle_sm.service.progress import Pacing

PACKAGE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class GuardFiles:
    """The guard of this installation of peagle-sm."""

    template: str
    content: dict[str, bytes]
    version: str

    @cached_property
    def digest(self) -> str:
        """16 hex digits over the package's content."""
        return digest(self.content)

    @property
    def key(self) -> str:
        """The key of the package in the bucket."""
        return object_key(self.digest)

    def archive(self) -> bytes:
        """Return the package as a zip."""
        return zipped(self.content)

    @cached_property
    def parameter_names(self) -> frozenset[str]:
        """The names of the template's parameters."""
        return frozenset(json.loads(self.template)["Parameters"])


def runtime_dir(package: Path = PACKAGE) -> Path:
    """Return the folder with ``peagle_guard``: in the wheel, or in the checkout.

    Raises:
        PeagleError: neither has it, so the installation is broken.
    """
    for app in (package / "_cdk_app", package.parent.parent):
        candidate = app / "stacks" / "guard" / "runtime"
        if (candidate / "peagle_guard" / "__init__.py").is_file():
            return candidate
    raise PeagleError(
        f"the guard's own code is not in {package}", next_step="Install peagle-sm again from its wheel."
    )


def shipped() -> GuardFiles:
    """Read what ships.

    Raises:
        PeagleError: the installation is broken.
    """
    template = files("peagle_sm") / "guard_assets" / "template.json"
    return GuardFiles(
        template=template.read_text(encoding="utf-8").strip(),
        content=package_files(runtime_dir(), files("tzdata")),
        version=version("peagle-sm"),
    )


SWEEP_TOPIC = "NoticesTopicArn"
"""The stack's output with the topic of the notices."""
_LATE_S = 3 * 60 * guard.SWEEP_MINUTES
_UNKNOWN_TOO_LONG_H = 2.0
_BUSY_TRIES = 12
_BUSY_WAIT_S = 5.0


@dataclass(frozen=True)
class GuardStatus:
    """``package`` is None where the CDK deployed it; ``current`` tells whether this peagle-sm is newer.

    ``last_sweep_at`` is None until the first sweep has ended; ``warnings`` say what is wrong, in words.
    """

    region: str
    stack_status: str
    version: str | None
    available: str
    package: str | None
    current: bool
    last_sweep_at: datetime | None
    alarms: tuple[Alarm, ...]
    dead_letters: int
    notices: tuple[Subscription, ...]
    endpoints: tuple[Watched, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; times as ISO text."""
        found: dict[str, Any] = plain(asdict(self))
        return found


def guard_status(session: Session, guard_files: GuardFiles | None = None) -> GuardStatus:
    """Look at the installation, its last sweep, its alarms and its register.

    Raises:
        NotFound: no guard is installed in the session's region.
    """
    stack = stacks.describe(session, guard.GUARD_STACK)
    if stack is None or stack.status == stacks.GONE:
        raise not_installed(session)
    sent = guard_files or shipped()
    key = stack.parameters.get("AssetKey")
    installed = stack.outputs.get("Version")
    last, endpoints = guard_resources.watched(session, guard.TABLE)
    alarms = tuple(guard_resources.alarms(session, guard.ALARMS))
    letters = guard_resources.waiting_messages(session, guard.DEAD_LETTERS)
    topic = stack.outputs.get(SWEEP_TOPIC)
    notices = tuple(guard_resources.subscriptions(session, topic)) if topic else ()
    return GuardStatus(
        region=session.region,
        stack_status=stack.status,
        version=installed,
        available=sent.version,
        package=None if key is None else key.rpartition("/")[2].removesuffix(".zip"),
        current=installed == sent.version and key in (None, sent.key),
        last_sweep_at=last,
        alarms=alarms,
        dead_letters=letters,
        notices=notices,
        endpoints=tuple(endpoints),
        warnings=tuple(_warnings(session, stack.status, last, alarms, letters, notices, endpoints)),
    )


def not_installed(session: Session) -> NotFound:
    """Return the error that says so."""
    return NotFound(
        f"No guard is installed in {session.region}.",
        next_step=install_step(session),
    )


def _warnings(
    session: Session,
    status: str,
    last: datetime | None,
    alarms: tuple[Alarm, ...],
    letters: int,
    notices: tuple[Subscription, ...],
    endpoints: Sequence[Watched],
) -> list[str]:
    said: list[str] = []
    if not status.endswith("_COMPLETE") or status == "ROLLBACK_COMPLETE":
        said.append(f"its stack is {status}")
    if last is None:
        said.append("no sweep has ended yet")
    elif (late := (session.now() - last).total_seconds()) > _LATE_S:
        said.append(f"the last sweep ended {late / 60:.0f} minutes ago; it should run every 5")
    missing = set(guard.ALARMS) - {alarm.name for alarm in alarms}
    said += [f"the alarm {name} is missing" for name in sorted(missing)]
    said += [f"alarm {alarm.name}: {alarm.reason or 'no reason given'}" for alarm in alarms if _rings(alarm)]
    if letters:
        said.append(f"about {letters} undelivered events lie in {guard.DEAD_LETTERS}")
    if not any(one.confirmed for one in notices):
        said.append("no notification goes out before an endpoint is turned off: no confirmed subscriber")
    said += [
        f"endpoint {one.name}: CloudWatch does not show its requests in flight: the guard sees a stream "
        "longer than the grace only by its GPUs; set lifecycle.grace_minutes above your longest stream"
        for one in endpoints
        if one.streams_hidden and one.gone_at is None
    ]
    return [*said, *_unknown(session, endpoints)]


def _unknown(session: Session, endpoints: Sequence[Watched]) -> Iterator[str]:
    """Yield a warning for each endpoint that the guard cannot find idle, as its metrics prove nothing."""
    flags = session.command_flags()
    for one in endpoints:
        if one.unknown_since is None or one.gone_at is not None:
            continue
        hours = (session.now() - one.unknown_since) / timedelta(hours=1)
        if hours >= _UNKNOWN_TOO_LONG_H:
            yield (
                f"endpoint {one.name}: for {hours:.1f} hours its metrics have proven neither traffic nor "
                "quiet: only its lifetime, budget or hours turn it off. Run "
                f"`peagle-sm guard sweep --dry-run{flags}` to see which metric is missing. If nobody uses "
                f"the endpoint, run `peagle-sm pause {one.name}{flags}`"
            )


def _rings(alarm: Alarm) -> bool:
    return alarm.state == "ALARM"


@dataclass(frozen=True)
class SweepReport:
    """What the sweeper Lambda answered, as it is: ``endpoints`` are rows, ``calls`` counts AWS calls."""

    time: str
    dry_run: bool
    endpoints: tuple[Mapping[str, Any], ...]
    calls: Mapping[str, int]
    faults: tuple[str, ...] = ()
    skipped: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "time": self.time,
            "dry_run": self.dry_run,
            "endpoints": [dict(row) for row in self.endpoints],
            "calls": dict(self.calls),
            "faults": list(self.faults),
            "skipped": self.skipped,
        }


def sweep(session: Session, *, dry_run: bool = False, pacing: Pacing | None = None) -> SweepReport:
    """Let the sweeper look now; with ``dry_run`` it only tells what it would do.

    Raises:
        NotFound: no guard is installed in the session's region.
        FunctionFault: the sweep failed.
        ServiceFault: other sweeps kept it busy for a minute.
    """
    pace = pacing or Pacing.for_session(session)
    answer: dict[str, Any] = {}
    for attempt in range(1, _BUSY_TRIES + 1):
        event = {"dry_run": dry_run}
        try:
            answer = guard_resources.invoke(session, guard.SWEEPER, event)
            break
        except NotFound as error:
            raise not_installed(session) from error
        except ServiceFault as error:
            # It runs alone: the scheduled sweep may be at work.
            if error.code != guard_resources.FUNCTION_BUSY or attempt == _BUSY_TRIES:
                raise
            pace.sleep(_BUSY_WAIT_S)
    return SweepReport(
        time=str(answer.get("time", "")),
        dry_run=dry_run,
        endpoints=tuple(answer.get("endpoints", ())),
        calls=answer.get("calls", {}),
        faults=tuple(answer.get("faults", ())),
        skipped=answer.get("skipped"),
    )
