"""Runs the shipped guard through a world: its sweep, its switch, its lifetime schedules."""

from __future__ import annotations

import builtins
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from peagle_guard import lifetime_provider, sweeper
from peagle_guard.records import OffBy
from peagle_guard.switch import turn
from tests.guard.simulator.fake_services.clients import SageMakerClient, SchedulerClient
from tests.guard.simulator.fake_services.cloudformation import Stack
from tests.guard.simulator.fake_services.dynamodb import TableRegister
from tests.guard.simulator.fake_services.errors import AwsFault, Killed
from tests.guard.simulator.fake_services.fake_aws import FakeAws, moment
from tests.guard.simulator.fake_services.sagemaker import Life
from tests.guard.simulator.judging.judge import SWEEP_S, Ended, acted_at
from tests.guard.simulator.people import SETTINGS, GuardedAccount
from tests.guard.simulator.worlds.world import BadItem, World

SWEEPER_S = 240
"""The sweeper's timeout (stacks/guard/functions.py)."""

NO_REASON = "no reason"

RETRIED_S = 60
"""A try to turn off that is noted later than this after another is a new one."""

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
    asked: dict[int, tuple[int, tuple[str, int | None]]] = field(default_factory=dict)
    """When a stack was asked to turn a life off, and the same of it."""
    killed: int = 0
    """Sweeps that reached the Lambda's timeout."""
    crashes: list[str] = field(default_factory=list)
    """Failures of the guard's own code: whatever is neither AWS's fault nor an owner's refusal."""

    def ended(self) -> list[Ended]:
        """Return how each life ended."""
        rows = []
        for life in self.account.sagemaker.lives:
            cause, marked = self.endings.get(id(life), ("", None))
            leases = self.account.kept.get(id(life), [])
            # A lease that comes while a stack is already being turned off is too late.
            in_time = [each.until for each in leases if each.at < acted_at(life, self.account.world.end)]
            expires = max([life.expires_at, *(each.until for each in leases)])
            rows.append(Ended(life, cause, marked, max(in_time, default=0), expires))
        return rows

    def note_update(self, stack: Stack, state: str) -> None:
        """Remember why a stack is asked to turn its endpoint off: that goes a little later."""
        life = self.account.sagemaker.live.get(stack.endpoint)
        if state == "off" and life is not None and life.turning_off_at is None:
            self.asked[id(life)] = (self.account.events.now, self._reason(life))

    def note_end(self, life: Life) -> None:
        """Remember why a life ends, from the register, as it ends."""
        if life.ended_by != "guard":
            self.endings[id(life)] = (life.ended_by, None)
            return
        at, reason = self.asked.get(id(life), (0, None))
        record = self.account.register.record(life.plan.name)
        # A deletion that did nothing was tried again since, maybe for another reason.
        again = record is not None and record.off_at is not None and record.off_at > moment(at + RETRIED_S)
        self.endings[id(life)] = self._reason(life) if reason is None or again else reason

    def _reason(self, life: Life) -> tuple[str, int | None]:
        """Why the guard says that a life ends, and when it had been marked."""
        name = life.plan.name
        record = self.account.register.record(name)
        marked = None if record is None or record.marked_at is None else self.account.marks.get(name)
        # The guard acted, and its register has no reason: that is a fault of the guard.
        cause = record.off_by if record is not None else None
        if record is None and any(bad.endpoint == name for bad in self.account.world.bad_items):
            cause, marked = OffBy.IDLE, self.account.marks.get(name)
        return str(cause or NO_REASON), marked

    def sweep(self, scheduled: int) -> None:
        """Run the sweeper's handler now; ``scheduled`` is the time that its event could carry.

        AWS's faults end it, as they end the Lambda.
        """
        account = self.account
        before, size = account.calls.total(), len(account.sagemaker.live)
        account.deadline = account.events.now + SWEEPER_S
        event = {"time": moment(scheduled + account.world.lambdas.clock_s).isoformat()}
        try:
            with redirect_stdout(_NOWHERE):
                sweeper.run(self.aws, SETTINGS, event)
        except AwsFault:
            return
        except Killed:
            self.killed += 1
            return
        except sweeper.SweepFailed as failed:
            self.crashes += [str(failed)] if _is_a_crash(str(failed)) else []
        except Exception as error:
            self.crashes.append(f"the sweep ended: {type(error).__name__}: {error}")
            return
        finally:
            account.deadline = None
        self.sweeps.append((size, account.calls.total() - before))

    def finished(self, now: int) -> bool:
        """Say whether nothing of ours is there, and nothing of ours will come."""
        world = self.account.world
        if any(plan.hours or plan.created_at > now - 2 * SWEEP_S for plan in world.plans):
            return False
        return not any(life.plan.ours for life in self.account.sagemaker.live.values())


_NOWHERE = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  (as long as the process)
_NAMES = re.compile(r"\b([A-Z]\w+): ")


def _is_a_crash(failures: str) -> bool:
    """Whether a sweep's failures name an exception of Python: AWS and its refusals raise none of those."""
    result = (getattr(builtins, name, None) for name in _NAMES.findall(failures))
    return any(isinstance(each, type) and issubclass(each, Exception) for each in result)


def start(world: World) -> GuardRun:
    """Set up a guarded account in which nothing has happened yet."""
    account = GuardedAccount.of(world)
    account.register = TableRegister(account.call, account.note_mark)
    functions: dict[str, Any] = {}
    account.schedules = SchedulerClient(account, functions)
    run = GuardRun(account, FakeAws(account, account.register, functions))
    account.sagemaker.ending = run.note_end
    account.cloudformation.asked = run.note_update

    def switch(event: Mapping[str, Any]) -> Mapping[str, Any]:
        return turn(run.aws, event)

    def wake(event: Mapping[str, Any]) -> Mapping[str, Any]:
        endpoints = SageMakerClient(account)
        return lifetime_provider.wake(account.schedules, endpoints, account.register, SETTINGS, event)

    functions |= {SETTINGS.switch_function: switch, SETTINGS.lifetime_function: wake}
    account.start()
    for lease in world.leases:
        account.events.at(lease.at, partial(account.keep, lease))
    for bad in world.bad_items:
        account.events.at(bad.at, partial(_spoil, account.register, bad))
    return run


def _spoil(register: TableRegister, bad: BadItem, now: int) -> None:
    kind, text = bad.value
    register.spoil(bad.endpoint, bad.attribute, {kind: text})


def run_guard(world: World) -> GuardRun:
    """Run a world under the guard to its end."""
    run = start(world)
    account, lambdas = run.account, world.lambdas
    for real, scheduled in _slots(world):
        if lambdas.dead:
            break
        account.events.run_until(real)
        if run.finished(scheduled):
            break
        if account.functions_run(real) and account.chance.random() >= lambdas.failing_share:
            run.sweep(scheduled)
            if lambdas.twice_share and account.chance.random() < lambdas.twice_share:
                account.events.run_until(real + account.chance.randint(1, TWICE_AFTER_S))
                run.sweep(scheduled)
    account.events.run_until(world.end)
    return run


def _slots(world: World) -> Iterator[tuple[int, int]]:
    """(moment, scheduled time) of each sweep, in the order in which they run."""
    times = range(world.begin + world.seed % SWEEP_S, world.end, SWEEP_S)
    delays = world.lambdas.delays_s
    if not delays:
        return zip(times, times, strict=True)
    return iter(sorted((time + delays[n % len(delays)], time) for n, time in enumerate(times)))
