"""What `doctor` finds, for programs and notebooks."""

from __future__ import annotations

from dataclasses import dataclass

from peagle_sm.aws.session.session import Session
from peagle_sm.core.checks.preflight import STATUSES, Result, Status
from peagle_sm.core.display.card import Card, Note, Shown, Table, Tone
from peagle_sm.core.errors import CredentialsError
from peagle_sm.core.plan.plan import Plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.words import advised
from peagle_sm.service.planning.planning import plan_for

_CHECKS: dict[Status, Tone] = {"error": "bad", "warning": "caution", "unknown": "caution", "ok": "good"}
_WORDS: dict[Status, str] = {
    "error": "in error",
    "warning": "with warnings",
    "unknown": "unknown",
    "skipped": "skipped",
}


@dataclass(frozen=True)
class Checkup(Shown):
    """Every verdict, the worst first."""

    results: tuple[Result, ...]

    @property
    def ok(self) -> bool:
        """True when no check says error; what could not be looked at is no error."""
        return not self.errors

    @property
    def errors(self) -> tuple[Result, ...]:
        """What a deploy would fail on, each with its next step."""
        return tuple(each for each in self.results if each.status == "error")

    def card(self) -> Card:
        """What a notebook shows of it."""
        return _card(self.results)


def planned(session: Session, spec: EndpointSpec | None) -> Plan | None:
    """The spec's plan; None without a spec, or where nobody is logged in, which a check then says.

    Raises:
        CredentialsError: the spec asks for another region than the session's.
    """
    if spec is None:
        return None
    try:
        return plan_for(spec, session, account_from_spec=True)
    except CredentialsError as error:
        if "wanted" in error.details:
            raise
        return None


def _card(results: tuple[Result, ...]) -> Card:
    """What is not well with what to do; what is well folded."""
    worst: dict[str, Status] = {}
    for each in sorted(results, key=lambda result: STATUSES.index(result.status)):
        worst.setdefault(each.check, each.status)
    counts = {status: sum(one == status for one in worst.values()) for status in STATUSES}
    told = [f"{counts[status]} {words}" for status, words in _WORDS.items() if counts[status]]
    good = tuple((each.check, each.message or each.what) for each in results if each.status == "ok")
    tone = next(
        _CHECKS[status]
        for status in ("error", "warning", "unknown", "ok")
        if counts[status] or status == "ok"
    )
    return Card(
        f"{len(worst)} checks",
        ", ".join([*told, f"{counts['ok']} in order"]),
        tone,
        tables=(Table(f"in order: {counts['ok']}", ("check", "what it looks at"), good, folded=True),)
        if good
        else (),
        notes=tuple(_verdict(each) for each in results if each.status != "ok"),
    )


def _verdict(each: Result) -> Note:
    said = advised(f"{each.status}: {each.check}: {each.message}", each.next_step)
    return Note(said, _CHECKS.get(each.status, "plain"))
