"""Preflight checks, and the results of `doctor`.

Readers run in parallel, within a time limit; each check evaluates what they read. `read_machine` reads
this machine (packages, disk, memory, the engine's environment). `Checkup` holds the results for
programs and notebooks.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

from peagle_sm.aws.control.stacks import describe
from peagle_sm.aws.files import cache_dir
from peagle_sm.aws.readers import PERMISSIONS, readers
from peagle_sm.aws.session.local_server import engine_state, is_installed
from peagle_sm.aws.session.session import Session
from peagle_sm.core.checks import ALL_CHECKS, SPEC_CHECKS
from peagle_sm.core.checks.base import STATUSES, Guard, Machine, Result, Status, Unknown, judge
from peagle_sm.core.display import Card, Note, Shown, Table
from peagle_sm.core.errors import CredentialsError, PeagleError, PlanRefused, SpecError
from peagle_sm.core.guard import GUARD_STACK
from peagle_sm.core.planning import Plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service.guard.status import shipped
from peagle_sm.service.inventory.guard_state import is_working
from peagle_sm.service.inventory.listing import plain
from peagle_sm.service.spec_to_plan import plan_for

TIMEOUT_S = 30.0
"""Time limit for all readers together; a reader without an answer by then is unknown."""


class PreflightFailed(PlanRefused):
    """A preflight check found an error; ``details["results"]`` has all not ok."""


def preflight(
    session: Session,
    plan: Plan | None = None,
    *,
    skip: Collection[str] = (),
    timeout_s: float = TIMEOUT_S,
    more: Mapping[str, Callable[[], Any]] | None = None,
) -> tuple[Result, ...]:
    """Check the account, and with a plan everything that its deploy needs.

    Creates nothing.

    Args:
        session: the account and region to check; fewer checks apply to the local SageMaker.
        plan: the plan to deploy; None checks only credentials and guard.
        skip: ids of checks to report as skipped.
        timeout_s: seconds for all readers together.
        more: further readers by name, such as this machine's.

    Raises:
        SpecError: ``skip`` has an unknown id.
    """
    known_ids(skip)
    draft = None if plan is None else plan.draft
    wanted = {name: partial(read, session, draft) for name, read in readers(session, draft).items()}
    facts = gather({**wanted, "guard": partial(read_guard, session), **(more or {})}, timeout_s)
    return judge(ALL_CHECKS, facts, draft, skip)


def without_session(problem: PeagleError, plan: Plan | None, machine: Machine) -> tuple[Result, ...]:
    """Check the spec and this machine; ``problem``, why no session opened, is reported, too."""
    identity = next(check for check in ALL_CHECKS if check.id == "credentials")
    message = f"{problem.message} The checks of the account did not run."
    error = Result(identity.id, "error", message, identity.what, identity.why, problem.next_step or "")
    draft = None if plan is None else plan.draft
    return (error, *judge(ALL_CHECKS, {"machine": machine}, draft))


def require_preflight(session: Session, plan: Plan, *, skip: Collection[str] = ()) -> tuple[Result, ...]:
    """Run the preflight of a deploy; guard and plan are checked elsewhere.

    Raises:
        PreflightFailed: a check found an error; ``details["results"]`` has all results.
    """
    every = preflight(session, plan, skip=skip)
    elsewhere = {"guard-installed", *(check.id for check in SPEC_CHECKS)}
    results = tuple(result for result in every if result.check not in elsewhere or result.status == "skipped")
    refuse_errors(results)
    return results


def refuse_errors(results: Collection[Result]) -> None:
    """Raise if a check found an error.

    Raises:
        CredentialsError: there are no valid credentials.
        PreflightFailed: another check found an error.
    """
    errors = [result for result in results if result.status == "error"]
    if not errors:
        return
    details = {"results": [asdict(result) for result in results if result.status != "ok"]}
    steps = " ".join(dict.fromkeys(result.next_step for result in errors))
    message = "\n".join(f"{result.check}: {result.message}" for result in errors)
    if any(result.check == "credentials" for result in errors):
        raise CredentialsError(message, next_step=steps, details=details)
    raise PreflightFailed(
        f"the preflight found errors; nothing was created:\n{message}",
        next_step=f"{steps} To deploy anyway: `peagle-sm deploy {_skip_options(errors)}`.",
        details=details,
    )


def _skip_options(errors: Collection[Result]) -> str:
    """Return the options of `deploy` that skip these errors; the guard has its own."""
    ids = dict.fromkeys(result.check for result in errors)
    return " ".join("--unguarded" if name == "guard-installed" else f"--skip-check {name}" for name in ids)


def known_ids(ids: Collection[str]) -> None:
    """Refuse an unknown check id.

    Raises:
        SpecError: an id is unknown.
    """
    known = {check.id for check in ALL_CHECKS}
    for wrong in sorted(set(ids) - known):
        raise SpecError(
            f"--skip-check: found {wrong}; allowed: an id of a check",
            next_step="Run `peagle-sm help checks` to list the ids.",
            details={"found": wrong, "allowed": sorted(known)},
        )


def read_guard(session: Session) -> Guard:
    """Read the state of the guard's stack.

    Raises:
        CredentialsError: the permission cloudformation:DescribeStacks is missing.
    """
    stack = describe(session, GUARD_STACK)
    if stack is None:
        return Guard(None)
    installed = stack.outputs.get("Version")
    return Guard(stack.status, installed, shipped().version, works=is_working(stack.status))


def gather(wanted: Mapping[str, Callable[[], Any]], timeout_s: float) -> dict[str, Any]:
    """Run all readers in parallel; a failure or timeout gives an `Unknown`."""
    facts: dict[str, Any] = {}
    # Daemon threads, no pool: a reader that hangs must not stop the program from ending.
    threads = {
        name: threading.Thread(
            target=_read_into, args=(facts, name, read), name=f"preflight-{name}", daemon=True
        )
        for name, read in wanted.items()
    }
    end = time.monotonic() + timeout_s
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, end - time.monotonic()))
    late = Unknown(f"no answer within {timeout_s:g} s")
    return {name: facts.get(name, late) for name in wanted}


def _read_into(facts: dict[str, Any], name: str, read: Callable[[], Any]) -> None:
    try:
        facts[name] = read()
    except PeagleError as error:
        operation = str(error.details.get("operation", ""))
        denied = isinstance(error, CredentialsError) and error.details.get("http_status") is not None
        facts[name] = Unknown(error.message, PERMISSIONS.get(operation) if denied else None)
    except Exception as error:
        facts[name] = Unknown(f"{type(error).__name__}: {error}")


def results_data(results: Collection[Result]) -> list[dict[str, Any]]:
    """Return the results as plain JSON types."""
    return [plain(asdict(result)) for result in results]


def read_machine() -> Machine:
    """Read this machine's state, and change nothing."""
    cache = cache_dir(os.environ)
    place = next(each for each in (cache, *cache.parents) if each.exists())
    return Machine(
        missing_packages=() if is_installed() else ("sagemaker-local",),
        disk_free_bytes=shutil.disk_usage(place).free,
        disk_path=str(place),
        memory_free_bytes=_free_memory(),
        engine=engine_state(),
        platform=platform.system().lower(),
    )


def _free_memory() -> int | None:
    if find_spec("psutil") is None:
        return None
    import psutil

    return int(psutil.virtual_memory().available)


_TITLES: dict[Status, str] = {
    "error": "Errors",
    "warning": "Warnings",
    "unknown": "Unknown (could not be checked)",
    "skipped": "Skipped",
}
_WORDS: dict[Status, str] = {
    "error": "with errors",
    "warning": "with warnings",
    "unknown": "unknown",
    "skipped": "skipped",
    "ok": "passed",
}
# The AWS operation before a cause. Different operations often fail for the same cause.
_OPERATION = re.compile(r"^[A-Z][A-Za-z0-9]+: ")


@dataclass(frozen=True)
class Checkup(Shown):
    """Results of all checks, the worst first."""

    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """True if no check found an error; unknown is not an error."""
        return not self.errors

    @property
    def errors(self) -> tuple[Result, ...]:
        """Errors that would make a deploy fail, each with its next step."""
        return tuple(result for result in self.results if result.status == "error")

    def card(self, verbose: bool = False) -> Card:
        """Return the view that terminals and notebooks show: failed checks with next steps, and the counts.

        ``verbose`` adds reasons, sources and the passed checks.
        """
        worst: dict[str, Status] = {}
        for result in sorted(self.results, key=lambda result: STATUSES.index(result.status)):
            worst.setdefault(result.check, result.status)
        counts = Counter(worst.values())
        words = [
            f"{counts[status]} {text}" for status, text in _WORDS.items() if counts[status] or status == "ok"
        ]
        blocks = (
            Table(title, (), tuple((line,) for line in lines)) for title, lines in self._blocks(verbose)
        )
        return Card(
            tables=tuple(block for block in blocks if block.rows),
            notes=(Note(", ".join(words), f"{len(worst)} checks"),),
        )

    def _blocks(self, verbose: bool) -> Iterator[tuple[str, list[str]]]:
        for status, title in _TITLES.items():
            chosen = [result for result in self.results if result.status == status]
            brief = status in ("unknown", "skipped") and not verbose
            yield title, _by_cause(chosen) if brief else [_lines(result, verbose) for result in chosen]
        fine = [result for result in self.results if result.status == "ok"]
        yield "Good to know", [f"{result.check}: {result.message}" for result in fine if result.message]
        names = " ".join(dict.fromkeys(result.check for result in fine if not result.message))
        yield "Passed", textwrap.wrap(names, 98, break_on_hyphens=False) if verbose else []


def planned(session: Session, spec: EndpointSpec | None) -> Plan | None:
    """Return the spec's plan; None without a spec.

    A check reports missing credentials; the plan then has a placeholder account.

    Raises:
        CredentialsError: the spec and the session have different regions.
    """
    return None if spec is None else plan_for(spec, session, without_credentials=True)


def _by_cause(results: Sequence[Result]) -> list[str]:
    """Return one line for each cause: many checks are unknown for the same cause."""
    causes: dict[str, list[str]] = {}
    for result in results:
        causes.setdefault(_OPERATION.sub("", result.message), []).append(result.check)
    return [
        f"{', '.join(dict.fromkeys(checks)) if len(checks) < 4 else f'{len(set(checks))} checks'}: {cause}"
        for cause, checks in causes.items()
    ]


def _lines(result: Result, verbose: bool) -> str:
    lines = [f"{result.check}: {result.message}"]
    if verbose and result.status in ("error", "warning"):
        lines.append(f"why: {result.why}")
    if result.next_step:
        lines.append(f"next: {result.next_step}")
    if verbose and result.source:
        lines.append(f"source: {result.source}" + (f" <{result.url}>" if result.url else ""))
    return "\n  ".join(lines)
