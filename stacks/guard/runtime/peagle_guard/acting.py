"""The second half of a sweep: what is decided about one endpoint is written down, told and done."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from peagle_guard import actions, notices
from peagle_guard.aws import Aws, Unanswered, same_arn, same_time
from peagle_guard.decide import decide
from peagle_guard.decide_gone import MOST_WAKE_TRIES
from peagle_guard.evidence import window
from peagle_guard.inventory import Inventory, is_foreign
from peagle_guard.looking import Ours, lifecycle_of
from peagle_guard.measure import Look, look
from peagle_guard.records import BUSY, SERVING, Action, Decision, Evidence, Kind, Lifecycle, Record, Tell
from peagle_guard.settings import Settings
from peagle_guard.track import track

_NOBODY = Evidence(Kind.UNKNOWN)
# A sweep has four minutes, and a call that hangs takes one of them.
_MOST_HUNG = 2
_CHANGED = "the register changed meanwhile: the next sweep looks again"


@dataclass(frozen=True)
class Actor:
    """Acts at ``now``, or only says what it would do."""

    aws: Aws
    settings: Settings
    inventory: Inventory
    now: datetime
    dry_run: bool = False
    # Endpoints for which a function gave no answer in this sweep.
    hung: list[str] = field(default_factory=list)

    def act(self, ours: Ours, decision: Decision) -> tuple[Decision, tuple[str, ...]]:
        """Do what was decided about an endpoint; return what came of it, and what failed."""
        if self.dry_run:
            return decision, ()
        if decision.action is not Action.TURN_OFF:
            return self._note(decision, ours.read, ours.lifecycle)
        return self._turn_off(ours, decision)

    def act_on_gone(
        self, record: Record, lifecycle: Lifecycle, decision: Decision
    ) -> tuple[Decision, tuple[str, ...]]:
        """Do what was decided about a name whose endpoint is not in the list."""
        if decision.action is Action.FORGET and not self.dry_run:
            if self.aws.register.forget(record):
                return decision, ()
            return _stood_down(decision, record, _CHANGED), ()
        if self.dry_run or decision.record == record:
            return decision, ()
        # The list may be behind; what is not found by its name is gone.
        found = self.aws.describe_endpoint(record.name)
        if found is not None and (
            same_time(found.created_at, record.created_at) or decision.action is Action.WAKE
        ):
            return _stood_down(decision, record, "it is there after all"), ()
        if decision.action is Action.WAKE:
            return self._wake(record, lifecycle)
        if record.gone_at is None:
            actions.settle(self.aws, self.settings, lifecycle, record)
        return self._note(decision, record, lifecycle)

    def _note(
        self, decision: Decision, read: Record, lifecycle: Lifecycle
    ) -> tuple[Decision, tuple[str, ...]]:
        """Write what is to be remembered, then tell."""
        stored = self.inventory.records.get(read.name)
        if decision.record == stored:
            return decision, ()
        if not self.aws.register.put(decision.record, self.now):
            return _stood_down(decision, read, _CHANGED), ()
        return decision, self._tell(decision, lifecycle)

    def _turn_off(self, ours: Ours, decision: Decision) -> tuple[Decision, tuple[str, ...]]:
        """Look again at everything, claim the endpoint in the register, tell, and act."""
        if len(self.hung) >= _MOST_HUNG:
            reason = f"left to the next sweep: no answer came for {', '.join(self.hung)}"
            return _stood_down(decision, ours.read, reason), (reason,)
        found = self.aws.describe_endpoint(ours.endpoint.name)
        seen = ours.endpoint
        if (
            found is None
            or not same_time(found.created_at, seen.created_at)
            or not same_arn(found.arn, seen.arn)
        ):
            return _stood_down(decision, ours.read, "it changed while it was looked at"), ()
        found = self.inventory.with_components(found)
        true_tags = self.aws.endpoint_tags(found.arn)
        record = self.aws.register.get(found.name)
        why = is_foreign(found, true_tags, record)
        if why is not None:
            return replace(_stood_down(decision, ours.read, why), action=Action.FOREIGN), ()
        lifecycle = lifecycle_of(found, true_tags)
        record = replace(record, tags=ours.read.tags)
        evidence, faults = self._look_again(replace(ours, endpoint=found, lifecycle=lifecycle, read=record))
        decision = decide(found, lifecycle, record, evidence, self.now)
        if decision.action is not Action.TURN_OFF:
            after, more = self._note(decision, record, lifecycle)
            return after, (*faults, *more)
        if not self.aws.register.put(decision.record, self.now):
            return _stood_down(decision, record, "another sweep was faster"), faults
        faults = (*faults, *self._tell(decision, lifecycle))
        try:
            outcome = actions.turn_off(self.aws, self.settings, lifecycle, decision.record)
        except Unanswered:
            self.hung.append(found.name)
            raise
        return replace(decision, reason=f"{decision.reason}: {outcome.state}, {outcome.detail}"), faults

    def _look_again(self, ours: Ours) -> tuple[Evidence, tuple[str, ...]]:
        endpoint = ours.endpoint
        if endpoint.status not in SERVING | BUSY or self.inventory.components is None:
            return _NOBODY, ()
        record = track(endpoint, ours.lifecycle, ours.read, self.now)
        found, faults = look(
            self.aws, [Look(endpoint, window(ours.lifecycle, record, self.now), record.streams_hidden)]
        )
        return found[endpoint.name], tuple(faults)

    def _wake(self, seen: Record, lifecycle: Lifecycle) -> tuple[Decision, tuple[str, ...]]:
        record = self.aws.register.get(seen.name)
        decision = decide(None, lifecycle, record, _NOBODY, self.now)
        if decision.action is not Action.WAKE:
            return decision, ()
        if not self.aws.register.put(decision.record, self.now):
            return _stood_down(decision, record, "another sweep was faster"), ()
        try:
            outcome = actions.wake(self.aws, self.settings, lifecycle, record, self.now)
        except Exception as error:
            faults: tuple[str, ...] = (f"{type(error).__name__}: {error}",)
            if decision.record.wake_tries >= MOST_WAKE_TRIES:
                failed = replace(decision, tell=Tell.WAKE_FAILED)
                faults = (*faults, *self._tell(failed, lifecycle, str(error)))
            return decision, faults
        if not outcome.started:
            # It waits for something else to end: that was no try.
            written = decision.record
            again = replace(written, wake_tries=written.wake_tries - 1, version=written.version + 1)
            self.aws.register.put(again, self.now)
        return replace(decision, reason=f"{decision.reason}: {outcome.state}, {outcome.detail}"), ()

    def _tell(self, decision: Decision, lifecycle: Lifecycle, detail: str = "") -> tuple[str, ...]:
        """Send the decision's notice. That it cannot be sent is a fault, and no reason to go on paying."""
        if decision.tell is None:
            return ()
        name = decision.record.name
        try:
            self.aws.publish(
                notices.subject(name, decision.tell, decision.off_by),
                notices.text(decision, lifecycle, self.now, detail),
            )
        except Exception as error:
            return (f"the notice could not be sent: {type(error).__name__}: {error}",)
        return ()


def _stood_down(decision: Decision, record: Record, reason: str) -> Decision:
    return replace(decision, action=Action.NONE, reason=reason, record=record, tell=None)
