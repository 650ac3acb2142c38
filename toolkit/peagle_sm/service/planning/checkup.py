"""What `doctor` finds, for programs and notebooks."""

from __future__ import annotations

from dataclasses import dataclass

from peagle_sm.aws.session.session import Session
from peagle_sm.core.checks.preflight import Result
from peagle_sm.core.display.card import Card, Shown
from peagle_sm.core.errors import CredentialsError
from peagle_sm.core.plan.records import Plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service.planning.planning import plan_for


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
        from peagle_sm.service.notebook.cards import checkup_card

        return checkup_card(self.results)


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
