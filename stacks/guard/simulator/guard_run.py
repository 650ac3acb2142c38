"""Runs the shipped guard through a world: its sweep, its switch, its lifetime schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from peagle_guard import lifetime_provider, turning
from peagle_guard.sweep import sweep
from stacks.guard.simulator.clients import SageMakerClient, SchedulerClient
from stacks.guard.simulator.errors import AwsFault
from stacks.guard.simulator.fake_aws import FakeAws, FakeRegister, moment, seconds
from stacks.guard.simulator.fake_switch import FakeSwitch
from stacks.guard.simulator.judge import SWEEP_S, Ended, acted_at
from stacks.guard.simulator.people import SETTINGS, GuardedAccount
from stacks.guard.simulator.sagemaker import Life
from stacks.guard.simulator.worlds import World

TWICE_AFTER_S = 200
"""A sweep that is delivered twice comes again within this, with the same scheduled time in its event."""


@dataclass(slots=True)
class GuardRun:
    """One world under the guard, and what it left."""

    account: GuardedAccount
    aws: FakeAws
    endings: dict[int, tuple[str, int | None]] = field(default_factory=dict)
    """By identity of a life: why it ended, and when it had been marked."""
    sweeps: list[tuple[int, int]] = field(default_factory=list)
    """(endpoints in the account, calls of the sweep), of the sweeps that no fault ended."""
    crashes: list[str] = field(default_factory=list)
    """Failures of the guard's own code: whatever is neither AWS's fault nor an owner's refusal."""

    def ended(self) -> list[Ended]:
        """Return how each life ended."""
        found = []
        for life in self.account.sagemaker.lives:
            cause, marked = self.endings.get(id(life), ("", None))
            leases = self.account.kept.get(id(life), [])
            # A lease that comes while a stack is already being turned off is too late.
            in_time = [each.until for each in leases if each.at < acted_at(life, self.account.world.end)]
            expires = max([life.expires_at, *(each.until for each in leases)])
            found.append(Ended(life, cause, marked, max(in_time, default=0), expires))
        return found

    def note_end(self, life: Life) -> None:
        """Remember why a life ends, from the register, as it ends."""
        record = self.account.register.records.get(life.plan.name)
        if life.ended_by != "guard" or record is None:
            self.endings[id(life)] = (life.ended_by, None)
            return
        marked = None if record.marked_at is None else seconds(record.marked_at)
        # The switch called by the schedule leaves no reason in the register.
        self.endings[id(life)] = (str(record.off_by or "schedule"), marked)

    def sweep(self, time: int) -> None:
        """Run one sweep at its scheduled time; AWS's faults end it, as they end the Lambda."""
        before, size = self.account.calls.total(), len(self.account.sagemaker.live)
        try:
            report = sweep(self.aws, SETTINGS, moment(time))
        except AwsFault:
            return
        self.sweeps.append((size, self.account.calls.total() - before))
        self.crashes += [fault for fault in report.failures if not _known(fault)]

    def finished(self, now: int) -> bool:
        """Say whether nothing of ours is there, and nothing of ours will come."""
        world = self.account.world
        if any(plan.hours or plan.created_at > now - 2 * SWEEP_S for plan in world.plans):
            return False
        return not any(life.plan.ours for life in self.account.sagemaker.live.values())


_KINDS: tuple[type[AwsFault], ...] = (AwsFault, *AwsFault.__subclasses__())
_FAULTS = tuple(f"{kind.__name__}: " for kind in _KINDS)


def _known(fault: str) -> bool:
    return any(name in fault for name in _FAULTS) or "Refused: " in fault


def start(world: World) -> GuardRun:
    """Set up a guarded account in which nothing has happened yet."""
    account = GuardedAccount.of(world)
    account.register = FakeRegister(account)
    functions: dict[str, Any] = {}
    account.schedules = SchedulerClient(account, functions)
    run = GuardRun(account, FakeAws(account, account.register, functions))
    account.sagemaker.ending = run.note_end

    def switch(event: Mapping[str, Any]) -> Mapping[str, Any]:
        return turning.turn(FakeSwitch(account), event)

    def wake(event: Mapping[str, Any]) -> Mapping[str, Any]:
        endpoints = SageMakerClient(account)
        return lifetime_provider.wake(account.schedules, endpoints, account.register, SETTINGS, event)

    functions |= {SETTINGS.switch_function: switch, SETTINGS.lifetime_function: wake}
    account.start()
    for lease in world.leases:
        account.events.at(lease.at, partial(account.keep, lease))
    return run


def run_guard(world: World) -> GuardRun:
    """Run a world under the guard to its end."""
    run = start(world)
    account, lambdas = run.account, world.lambdas
    time = world.begin + world.seed % SWEEP_S
    while time < world.end and not lambdas.dead:
        account.events.run_until(time)
        if run.finished(time):
            break
        if account.functions_run(time) and account.chance.random() >= lambdas.failing_share:
            run.sweep(time)
            if lambdas.twice_share and account.chance.random() < lambdas.twice_share:
                account.events.run_until(time + account.chance.randint(1, TWICE_AFTER_S))
                run.sweep(time)
        time += SWEEP_S
    account.events.run_until(world.end)
    return run
