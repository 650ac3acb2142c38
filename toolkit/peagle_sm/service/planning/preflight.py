"""The preflight: readers side by side, bounded in time, and each check's verdict on what they brought."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from peagle_sm.aws.control.stacks import describe
from peagle_sm.aws.readers import PERMISSIONS, readers
from peagle_sm.aws.session.session import Session
from peagle_sm.core.catalog.catalog import load_catalog
from peagle_sm.core.checks import ALL_CHECKS, SPEC_CHECKS
from peagle_sm.core.checks.preflight import Result, Unknown, judge
from peagle_sm.core.checks.preflight_facts import Guard
from peagle_sm.core.errors import CredentialsError, PeagleError, PlanRefused, SpecError
from peagle_sm.core.guard.names import GUARD_STACK
from peagle_sm.core.plan.plan import Plan
from peagle_sm.core.plan.resolve import Draft, resolve
from peagle_sm.service.guard.files import shipped
from peagle_sm.service.guard.guarding import is_working
from peagle_sm.service.inventory.listing import plain

TIMEOUT_S = 30.0
"""How long all readers together may take; what has not answered by then is unknown."""


class PreflightFailed(PlanRefused):
    """A check of the preflight says error; ``details["results"]`` has every verdict that is not ok."""


def preflight(
    session: Session,
    plan: Plan | None = None,
    *,
    skip: Collection[str] = (),
    timeout_s: float = TIMEOUT_S,
    more: Mapping[str, Callable[[], Any]] | None = None,
) -> tuple[Result, ...]:
    """Look at the account, and with a plan at all that its deploy draws on; creates nothing.

    Args:
        session: where to look; the local SageMaker is asked for less.
        plan: what is to be deployed; None looks at credentials and guard alone.
        skip: ids of checks that are told as skipped.
        timeout_s: seconds for all readers together.
        more: further readers by name, such as this machine's.

    Raises:
        SpecError: ``skip`` has an id that is no check's.
    """
    known_ids(skip)
    draft = None if plan is None else draft_of(plan)
    wanted = {name: partial(read, session, draft) for name, read in readers(session, draft).items()}
    facts = gather({**wanted, "guard": partial(read_guard, session), **(more or {})}, timeout_s)
    return judge(ALL_CHECKS, facts, draft, skip)


def machine_only(problem: PeagleError, machine: Any, *, skip: Collection[str] = ()) -> tuple[Result, ...]:
    """Check this machine where no session could be opened; the problem is the credentials' verdict."""
    known_ids(skip)
    identity = next(each for each in ALL_CHECKS if each.id == "credentials")
    error = Result(
        identity.id, "error", problem.message, identity.what, identity.why, problem.next_step or ""
    )
    return (error, *judge(ALL_CHECKS, {"machine": machine}, None, skip))


def require_preflight(session: Session, plan: Plan, *, skip: Collection[str] = ()) -> tuple[Result, ...]:
    """Run the preflight of a deploy; the guard, and what the plan itself says, are asked for elsewhere.

    Raises:
        PreflightFailed: a check says error; ``details["results"]`` has them all.
    """
    found = preflight(session, plan, skip=skip)
    elsewhere = {"guard-installed", *(each.id for each in SPEC_CHECKS)}
    results = tuple(each for each in found if each.check not in elsewhere or each.status == "skipped")
    refuse_errors(results)
    return results


def refuse_errors(results: Collection[Result]) -> None:
    """Go on only where no check says error.

    Raises:
        CredentialsError: nobody is logged in.
        PreflightFailed: another check says error.
    """
    errors = [each for each in results if each.status == "error"]
    if not errors:
        return
    details = {"results": [asdict(each) for each in results if each.status != "ok"]}
    steps = " ".join(dict.fromkeys(each.next_step for each in errors))
    message = "\n".join(f"{each.check}: {each.message}" for each in errors)
    if any(each.check == "credentials" for each in errors):
        raise CredentialsError(message, next_step=steps, details=details)
    raise PreflightFailed(
        f"the preflight found what would fail; nothing was created:\n{message}",
        next_step=f"{steps} To deploy all the same: `peagle-sm deploy {_regardless(errors)}`.",
        details=details,
    )


def _regardless(errors: Collection[Result]) -> str:
    """The options of `deploy` that go on in spite of these errors; the guard's is one of its own."""
    ids = dict.fromkeys(each.check for each in errors)
    return " ".join("--unguarded" if each == "guard-installed" else f"--skip-check {each}" for each in ids)


def known_ids(ids: Collection[str]) -> None:
    """Refuse an id that no check has.

    Raises:
        SpecError: with the ids that there are.
    """
    known = {each.id for each in ALL_CHECKS}
    for wrong in sorted(set(ids) - known):
        raise SpecError(
            f"--skip-check {wrong}: there is no such check",
            next_step="List them with `peagle-sm checks`.",
            details={"found": wrong, "allowed": sorted(known)},
        )


def draft_of(plan: Plan) -> Draft:
    """Return the plan's spec with every choice made."""
    return resolve(plan.spec, plan.context, load_catalog())


def read_guard(session: Session) -> Guard:
    """Look at the guard's stack.

    Raises:
        CredentialsError: cloudformation:DescribeStacks is missing.
    """
    stack = describe(session, GUARD_STACK)
    if stack is None:
        return Guard(None)
    installed = stack.outputs.get("Version")
    return Guard(stack.status, installed, shipped().version, works=is_working(stack.status))


def gather(wanted: Mapping[str, Callable[[], Any]], timeout_s: float) -> dict[str, Any]:
    """Run all at once; whatever fails, or takes longer than ``timeout_s``, is an `Unknown`."""
    facts: dict[str, Any] = {}
    # Daemons, and no pool: a reader that hangs must not keep the program from ending.
    threads = {
        name: threading.Thread(target=_into, args=(facts, name, read), name=f"preflight-{name}", daemon=True)
        for name, read in wanted.items()
    }
    end = time.monotonic() + timeout_s
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, end - time.monotonic()))
    late = Unknown(f"no answer within {timeout_s:g} s")
    return {name: facts.get(name, late) for name in wanted}


def _into(facts: dict[str, Any], name: str, read: Callable[[], Any]) -> None:
    try:
        facts[name] = read()
    except PeagleError as error:
        operation = str(error.details.get("operation", ""))
        denied = isinstance(error, CredentialsError) and error.details.get("http_status") is not None
        facts[name] = Unknown(error.message, PERMISSIONS.get(operation) if denied else None)
    except Exception as error:
        facts[name] = Unknown(f"{type(error).__name__}: {error}")


def results_data(results: Collection[Result]) -> list[dict[str, Any]]:
    """Plain JSON types."""
    return [plain(asdict(each)) for each in results]
