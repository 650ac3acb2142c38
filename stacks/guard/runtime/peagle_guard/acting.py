"""Second half of a sweep: record the decision on an endpoint, send the notice, and carry it out.

The sweeper deletes nothing itself: it invokes the switch or the lifetime provider.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from peagle_guard.aws import Aws, Unanswered, same_arn, same_time
from peagle_guard.decide import MOST_WAKE_TRIES, WOKEN_AFTER, decide, expires_at, repriced, spent_usd, track
from peagle_guard.evidence import Look, look, window
from peagle_guard.lifetime_provider import HARD_AFTER
from peagle_guard.looking import Inventory, Ours, is_foreign
from peagle_guard.records import (
    BUSY,
    SERVING,
    Action,
    Decision,
    Evidence,
    Kind,
    Lifecycle,
    OffBy,
    Record,
    Tell,
    lifecycle_from_tags,
)
from peagle_guard.settings import Settings

# SNS allows 100 characters of ASCII without line breaks.
_LONGEST_SUBJECT = 100

_WHY = {
    OffBy.IDLE: "it has been quiet for its idle time",
    OffBy.LIFETIME: "its maximum lifetime ends",
    OffBy.BUDGET: "its budget is spent",
    OffBy.HOURS: "its hours end",
    OffBy.FAILED: "it failed",
    OffBy.OTHERS: "it was deleted, but not by the guard",
}


def subject(name: str, tell: Tell, off_by: OffBy | None) -> str:
    """Return the subject of a notice."""
    text = {
        Tell.IDLE_SOON: f"peagle-sm: {name} is idle and will be turned off",
        Tell.LIMIT_SOON: f"peagle-sm: {name} will be turned off ({off_by})",
        Tell.OFF_NOW: f"peagle-sm: {name} is being turned off ({off_by})",
        Tell.GONE: f"peagle-sm: {name} is off ({off_by})",
        Tell.WAKE_FAILED: f"peagle-sm: {name} could not be turned on",
    }[tell]
    return text.encode("ascii", "replace").decode()[:_LONGEST_SUBJECT]


def text(decision: Decision, lifecycle: Lifecycle, now: datetime, detail: str = "") -> str:
    """Return the body of a decision's notice."""
    name, tell = decision.record.name, decision.tell
    resume = f"  peagle-sm resume {name}"
    if tell is Tell.WAKE_FAILED:
        return f"Endpoint {name} could not be turned on: {detail}\nTo turn it on yourself:\n{resume}"
    why = _WHY[decision.off_by] if decision.off_by is not None else decision.reason
    spent = _spent(lifecycle, decision.record, now)
    again = ["To turn it on again later:", resume]
    if tell is Tell.GONE:
        wakes = lifecycle.hours is not None and decision.off_by in WOKEN_AFTER
        lines = [
            f"Endpoint {name} no longer exists ({why}); checked at {_at(now)}. {spent}",
            *([f"Its hours ({lifecycle.hours}) turn it on again at their next start."] if wakes else []),
            "Its configuration and model are kept and cost nothing. To turn it on again:",
            resume,
        ]
    elif tell is Tell.OFF_NOW:
        lines = [f"Endpoint {name} is being turned off now: {why}. {spent}", *again]
    else:
        at = _at(decision.off_at or now)
        lines = [
            f"Endpoint {name} will be turned off at {at}, or soon after: {why}. {spent}",
            "To keep it, for example for two hours:",
            f"  peagle-sm keep {name} 2h",
            *(["or send it a request before then."] if tell is Tell.IDLE_SOON else again),
        ]
    return "\n".join(lines)


def _spent(lifecycle: Lifecycle, record: Record, now: datetime) -> str:
    if lifecycle.usd_per_hour is None:
        return "Cost unknown: the plan had no price."
    spent = spent_usd(lifecycle, record, now)
    budget = "" if lifecycle.budget_usd is None else f" of a budget of {lifecycle.budget_usd:.2f} USD"
    bound = "at most" if lifecycle.price_at_most else "about"
    return f"It has cost {bound} {spent:.2f} USD so far{budget} (the plan's price, not the bill)."


def _at(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")


DONE, IN_PROGRESS, REFUSED = "done", "in-progress", "refused"


class Refused(Exception):
    """Error: the switch or the provider refused; the message is its own."""


@dataclass(frozen=True)
class SwitchResponse:
    """Response of the switch or provider; ``started`` is False while it waits for something else to end.

    ``fault``: what failed although the rest was done.
    """

    state: str
    detail: str
    started: bool = True
    fault: str = ""


def turn_off(aws: Aws, settings: Settings, lifecycle: Lifecycle, record: Record) -> SwitchResponse:
    """Ask the switch to turn the endpoint off.

    Raises:
        Refused: the function refused.
    """
    owner = {"stack": lifecycle.stack} if lifecycle.stack else {}
    return _ask(aws, settings.switch_function, _off(record) | owner)


def settle(aws: Aws, settings: Settings, lifecycle: Lifecycle, record: Record) -> SwitchResponse:
    """Remove the lifetime schedules and alarms of a deleted endpoint through the switch.

    CloudFormation removes a stack's schedules with the endpoint, but not if it failed to delete the endpoint
    or if the endpoint was deleted by hand. ``expires_at`` and ``last_seen_at`` protect newer schedules: a new
    endpoint of the name has created them later.

    Raises:
        Refused: the switch refused.
    """
    if record.created_at is None or not record.arn:
        return SwitchResponse(DONE, "no schedule is known")
    # It was armed before the endpoint's creation was known to the second: a little later is still it.
    expires = expires_at(record.created_at, lifecycle, record) + timedelta(minutes=1)
    event = _off(record) | {
        "expires_at": expires.isoformat(),
        "last_seen_at": _last_seen_at(record).isoformat(),
    }
    if lifecycle.stack:
        event["hard_expires_at"] = (expires + HARD_AFTER).isoformat()
    return _ask(aws, settings.switch_function, event)


def wake(aws: Aws, settings: Settings, lifecycle: Lifecycle, record: Record, now: datetime) -> SwitchResponse:
    """Turn the endpoint on again through the switch or the lifetime provider.

    Raises:
        Refused: the function refused.
    """
    if lifecycle.stack:
        return _ask(aws, settings.switch_function, {"action": "on", "stack": lifecycle.stack})
    event = {"action": "wake", "endpoint": record.name, "config": record.config_name, "time": now.isoformat()}
    return _ask(aws, settings.lifetime_function, event)


def _last_seen_at(record: Record) -> datetime:
    """Return the last time in the register at which the endpoint existed and had not failed.

    Schedules for the next endpoint of its name are created later: a deploy creates them at the earliest when
    the old endpoint has failed or is being deleted. The first sweep that misses the endpoint may be later
    than the next deploy, so its time does not count.
    """
    seen = [record.created_at, record.first_in_service_at, record.marked_at, record.warned_at]
    if record.off_by is not OffBy.FAILED:
        seen.append(record.off_at)
    return max(moment for moment in seen if moment is not None)


def _off(record: Record) -> dict[str, Any]:
    created = record.created_at.isoformat() if record.created_at else ""
    return {"action": "off", "endpoint": record.name, "arn": record.arn, "created_at": created}


def _ask(aws: Aws, function: str, event: Mapping[str, Any]) -> SwitchResponse:
    answer = aws.invoke(function, event)
    state, detail = str(answer.get("state")), str(answer.get("detail", ""))
    if state not in (DONE, IN_PROGRESS):
        raise Refused(f"{function} answered {state}: {detail}")
    return SwitchResponse(state, detail, bool(answer.get("started", True)), str(answer.get("fault", "")))


_NOBODY = Evidence(Kind.UNKNOWN)
# A sweep has four minutes, and a call that times out takes one of them.
_MOST_HUNG = 2
_CHANGED = "the register changed meanwhile; the next sweep retries"


@dataclass(frozen=True)
class Actor:
    """Executor of decisions at ``now``; in a dry run it changes nothing."""

    aws: Aws
    settings: Settings
    inventory: Inventory
    now: datetime
    dry_run: bool = False
    # Endpoints for which a function did not respond in this sweep.
    hung: list[str] = field(default_factory=list)

    def act(self, ours: Ours, decision: Decision) -> tuple[Decision, tuple[str, ...]]:
        """Carry out the decision on an endpoint; return the outcome, and what failed."""
        if self.dry_run:
            return decision, ()
        if decision.action is not Action.TURN_OFF:
            return self._note(decision, ours.read, ours.lifecycle)
        return self._turn_off(ours, decision)

    def act_on_gone(
        self, record: Record, lifecycle: Lifecycle, decision: Decision
    ) -> tuple[Decision, tuple[str, ...]]:
        """Carry out the decision on a name whose endpoint is not in the list."""
        if decision.action is Action.FORGET and not self.dry_run:
            if self.aws.register.forget(record):
                return decision, ()
            return _stood_down(decision, record, _CHANGED), ()
        if self.dry_run or decision.record == record:
            return decision, ()
        # The list may lag behind, so DescribeEndpoint decides.
        endpoint = self.aws.describe_endpoint(record.name)
        if endpoint is not None and (
            same_time(endpoint.created_at, record.created_at) or decision.action is Action.WAKE
        ):
            return _stood_down(decision, record, "the endpoint still exists"), ()
        if decision.action is Action.WAKE:
            return self._wake(record, lifecycle)
        fault = "" if record.gone_at is not None else settle(self.aws, self.settings, lifecycle, record).fault
        decision, faults = self._note(decision, record, lifecycle)
        return decision, (fault, *faults) if fault else faults

    def _note(
        self, decision: Decision, read: Record, lifecycle: Lifecycle
    ) -> tuple[Decision, tuple[str, ...]]:
        """Write the record, then send the notice."""
        stored = self.inventory.records.get(read.name)
        if decision.record == stored:
            return decision, ()
        if not self.aws.register.put(decision.record, self.now):
            return _stood_down(decision, read, _CHANGED), ()
        return decision, self._tell(decision, lifecycle)

    def _turn_off(self, ours: Ours, decision: Decision) -> tuple[Decision, tuple[str, ...]]:
        """Check everything again, claim the endpoint in the register, send the notice, and turn it off."""
        if len(self.hung) >= _MOST_HUNG:
            reason = f"left to the next sweep: AWS did not answer for {', '.join(self.hung)}"
            return _stood_down(decision, ours.read, reason), (reason,)
        endpoint = self.aws.describe_endpoint(ours.endpoint.name)
        seen = ours.endpoint
        if (
            endpoint is None
            or not same_time(endpoint.created_at, seen.created_at)
            or not same_arn(endpoint.arn, seen.arn)
        ):
            return _stood_down(decision, ours.read, "it changed during the sweep"), ()
        endpoint = self.inventory.with_components(endpoint)
        true_tags = self.aws.endpoint_tags(endpoint.arn)
        record = self.aws.register.get(endpoint.name)
        why = is_foreign(endpoint, true_tags, record)
        if why is not None:
            return replace(_stood_down(decision, ours.read, why), action=Action.FOREIGN), ()
        lifecycle = lifecycle_from_tags(true_tags)
        record = repriced(record, ours.read.tags, self.now)
        current = replace(ours, endpoint=endpoint, lifecycle=lifecycle, read=record)
        evidence, faults = self._look_again(current)
        decision = decide(endpoint, lifecycle, record, evidence, self.now)
        if decision.action is not Action.TURN_OFF:
            after, more = self._note(decision, record, lifecycle)
            return after, (*faults, *more)
        if not self.aws.register.put(decision.record, self.now):
            return _stood_down(decision, record, "another sweep was faster"), faults
        faults = (*faults, *self._tell(decision, lifecycle))
        try:
            outcome = turn_off(self.aws, self.settings, lifecycle, decision.record)
        except Unanswered:
            self.hung.append(endpoint.name)
            raise
        return replace(decision, reason=f"{decision.reason}: {outcome.state}, {outcome.detail}"), faults

    def _look_again(self, ours: Ours) -> tuple[Evidence, tuple[str, ...]]:
        endpoint = ours.endpoint
        if endpoint.status not in SERVING | BUSY or self.inventory.components is None:
            return _NOBODY, ()
        record = track(endpoint, ours.lifecycle, ours.read, self.now)
        by_name, faults = look(
            self.aws, [Look(endpoint, window(ours.lifecycle, record, self.now), record.streams_hidden)]
        )
        return by_name[endpoint.name], tuple(faults)

    def _wake(self, seen: Record, lifecycle: Lifecycle) -> tuple[Decision, tuple[str, ...]]:
        record = self.aws.register.get(seen.name)
        decision = decide(None, lifecycle, record, _NOBODY, self.now)
        if decision.action is not Action.WAKE:
            return decision, ()
        if not self.aws.register.put(decision.record, self.now):
            return _stood_down(decision, record, "another sweep was faster"), ()
        try:
            outcome = wake(self.aws, self.settings, lifecycle, record, self.now)
        except Exception as error:
            faults: tuple[str, ...] = (f"{type(error).__name__}: {error}",)
            if decision.record.wake_tries >= MOST_WAKE_TRIES:
                failed = replace(decision, tell=Tell.WAKE_FAILED)
                faults = (*faults, *self._tell(failed, lifecycle, str(error)))
            return decision, faults
        if not outcome.started:
            # It only waits for something else to end, which does not count as a try.
            written = decision.record
            again = replace(written, wake_tries=written.wake_tries - 1, version=written.version + 1)
            self.aws.register.put(again, self.now)
        return replace(decision, reason=f"{decision.reason}: {outcome.state}, {outcome.detail}"), ()

    def _tell(self, decision: Decision, lifecycle: Lifecycle, detail: str = "") -> tuple[str, ...]:
        """Send the decision's notice; a failure is reported but does not stop the turn-off."""
        if decision.tell is None:
            return ()
        name = decision.record.name
        try:
            self.aws.publish(
                subject(name, decision.tell, decision.off_by),
                text(decision, lifecycle, self.now, detail),
            )
        except Exception as error:
            return (f"the notice could not be sent: {type(error).__name__}: {error}",)
        return ()


def _stood_down(decision: Decision, record: Record, reason: str) -> Decision:
    return replace(decision, action=Action.NONE, reason=reason, record=record, tell=None)
