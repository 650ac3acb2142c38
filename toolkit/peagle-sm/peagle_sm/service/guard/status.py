"""Version, health and sweeps of the guard.

`shipped` reads the template and builds the Lambda package that this version of peagle-sm installs.
`guard_status` compares the installed guard with them. `sweep` runs one sweep and returns its report.
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
from peagle_sm.aws.control.guard_resources import Alarm, RegisterEntry, Subscription
from peagle_sm.aws.session.session import Session
from peagle_sm.core import guard
from peagle_sm.core.errors import NotFound, PeagleError, ServiceFault
from peagle_sm.core.guard import digest, object_key, package_files, zipped
from peagle_sm.service.inventory.guard_state import install_step, renewal
from peagle_sm.service.inventory.listing import plain
from peagle_sm.service.progress import Pacing

PACKAGE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class GuardFiles:
    """Template and Lambda package that this peagle-sm installs."""

    template: str
    content: dict[str, bytes]
    version: str

    @cached_property
    def digest(self) -> str:
        """Hash of the package's content: 16 hex digits."""
        return digest(self.content)

    @property
    def key(self) -> str:
        """Key of the package in the bucket."""
        return object_key(self.digest)

    def archive(self) -> bytes:
        """Return the package as a zip."""
        return zipped(self.content)

    @cached_property
    def parameter_names(self) -> frozenset[str]:
        """Names of the template's parameters."""
        return frozenset(json.loads(self.template)["Parameters"])


def runtime_dir(package: Path = PACKAGE) -> Path:
    """Return the folder with ``peagle_guard``: in the wheel, or in the checkout.

    Raises:
        PeagleError: neither has it, so the installation is broken.
    """
    for app in (package / "_cdk_app", package.parents[2]):
        candidate = app / "stacks" / "guard" / "runtime"
        if (candidate / "peagle_guard" / "__init__.py").is_file():
            return candidate
    raise PeagleError(
        f"the guard's own code is not in {package}", next_step="Install peagle-sm again from its wheel."
    )


def shipped() -> GuardFiles:
    """Read the template and the Lambda code of this installation.

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
"""Name of the stack output that holds the notification topic."""
_LATE_S = 3 * 60 * guard.SWEEP_MINUTES
_UNKNOWN_TOO_LONG_H = 2.0
_BUSY_TRIES = 12
_BUSY_WAIT_S = 5.0


@dataclass(frozen=True)
class GuardStatus:
    """State of the installed guard.

    ``package`` is None if the CDK deployed it. ``current`` is False if this peagle-sm would install another
    version; ``renewal`` is the command for that.
    ``last_sweep_at`` is None until the first sweep has ended. ``warnings`` are sentences to show.
    """

    region: str
    stack_status: str
    version: str | None
    available: str
    package: str | None
    current: bool
    renewal: str
    last_sweep_at: datetime | None
    alarms: tuple[Alarm, ...]
    dead_letters: int
    notices: tuple[Subscription, ...]
    endpoints: tuple[RegisterEntry, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; times as ISO text."""
        document: dict[str, Any] = plain(asdict(self))
        for entry in document["endpoints"]:
            for internal in ("version", "held", "read_at"):
                del entry[internal]
        return document


def guard_status(session: Session, guard_files: GuardFiles | None = None) -> GuardStatus:
    """Read the installation, its last sweep, its alarms and its register.

    Raises:
        NotFound: no guard is installed in the session's region.
    """
    stack = stacks.describe(session, guard.GUARD_STACK)
    if stack is None or stack.status == stacks.GONE:
        raise not_installed(session)
    sent = guard_files or shipped()
    key = stack.parameters.get("AssetKey")
    installed = stack.outputs.get("Version")
    register, last = guard_resources.entries(session)
    endpoints = list(register.values())
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
        renewal=renewal(stack, session.command_flags()),
        last_sweep_at=last,
        alarms=alarms,
        dead_letters=letters,
        notices=notices,
        endpoints=tuple(endpoints),
        warnings=tuple(_warnings(session, stack.status, last, alarms, letters, notices, endpoints)),
    )


def not_installed(session: Session) -> NotFound:
    """Return the error for a region without a guard."""
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
    endpoints: Sequence[RegisterEntry],
) -> list[str]:
    warnings: list[str] = []
    if not status.endswith("_COMPLETE") or status == "ROLLBACK_COMPLETE":
        warnings.append(f"its stack is {status}")
    if last is None:
        warnings.append("no sweep has ended yet")
    elif (late := (session.now() - last).total_seconds()) > _LATE_S:
        warnings.append(f"the last sweep ended {late / 60:.0f} minutes ago; it should run every 5")
    missing = set(guard.ALARMS) - {alarm.name for alarm in alarms}
    warnings += [f"the alarm {name} is missing" for name in sorted(missing)]
    warnings += [
        f"alarm {alarm.name}: {alarm.reason or 'no reason given'}"
        for alarm in alarms
        if alarm.state == "ALARM"
    ]
    if letters:
        warnings.append(f"about {letters} undelivered events are in the queue {guard.DEAD_LETTERS}")
    if not any(subscription.confirmed for subscription in notices):
        warnings.append("no confirmed subscriber: no notice goes out before an endpoint is turned off")
    warnings += [
        f"endpoint {endpoint.name}: CloudWatch has no metric of its requests in flight. The guard detects a "
        "stream longer than the grace period only by GPU use: set lifecycle.grace_minutes above your "
        "longest stream"
        for endpoint in endpoints
        if endpoint.streams_hidden and endpoint.gone_at is None
    ]
    return [*warnings, *_idleness_warnings(session, endpoints)]


def _idleness_warnings(session: Session, endpoints: Sequence[RegisterEntry]) -> Iterator[str]:
    """Yield a warning for each endpoint whose metrics do not show whether it is idle."""
    flags = session.command_flags()
    for endpoint in endpoints:
        if endpoint.unknown_since is None or endpoint.gone_at is not None:
            continue
        hours = (session.now() - endpoint.unknown_since) / timedelta(hours=1)
        if hours >= _UNKNOWN_TOO_LONG_H:
            yield (
                f"endpoint {endpoint.name}: for {hours:.1f} hours its metrics have not shown whether it is "
                "idle, so only its lifetime, budget or hours turn it off. Run "
                f"`peagle-sm guard sweep --dry-run{flags}` to see which metric is missing. If the endpoint "
                f"is unused, run `peagle-sm pause {endpoint.name}{flags}`"
            )


@dataclass(frozen=True)
class SweepReport:
    """Answer of the sweeper Lambda; ``calls`` counts its calls to AWS."""

    time: str
    dry_run: bool
    endpoints: tuple[Mapping[str, Any], ...]
    calls: Mapping[str, int]
    faults: tuple[str, ...] = ()
    skipped: str | None = None
    jobs: tuple[Mapping[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def sweep(session: Session, *, dry_run: bool = False, pacing: Pacing | None = None) -> SweepReport:
    """Run one sweep now; with ``dry_run`` it only reports what it would do.

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
            # Only one sweep runs at a time: the scheduled one may be running.
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
        jobs=tuple(answer.get("training", ())),
    )
