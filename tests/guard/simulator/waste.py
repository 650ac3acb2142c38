"""What an endpoint that is never used costs in a plain world, by its cause."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.guard.simulator.guard_run import run_guard
from tests.guard.simulator.judging.judge import IDLE, LATEST_S, acted_at
from tests.guard.simulator.judging.tally import quantile
from tests.guard.simulator.kinds import PLAIN, kind_world
from tests.guard.simulator.worlds.traffic import Traffic

CAUSES = (
    "idle_minutes + grace_minutes",
    "the wait for late request metrics (27 min where no zeros are written)",
    "sweeps every five minutes, and CloudWatch's delay",
    "the update of the stack, until its endpoint is turned off",
)


@dataclass(frozen=True, slots=True)
class Waste:
    """One life: USD by cause, in the order of ``CAUSES``."""

    usd: tuple[float, ...]
    zeros: bool

    @property
    def total(self) -> float:
        """Return the cost from the first InService to the turn-off."""
        return sum(self.usd)


def plain_waste(worlds: int, seed: int) -> list[Waste]:
    """Run plain worlds without any traffic; each has one endpoint at 100 USD an hour."""
    found = []
    for number in range(seed, seed + worlds):
        world = kind_world(PLAIN, number)
        plans = tuple(
            replace(plan, traffic=tuple((lane, Traffic()) for lane, _ in plan.traffic))
            for plan in world.plans
        )
        zeros = world.cloudwatch.zeros
        for each in run_guard(replace(world, plans=plans)).ended():
            life, plan = each.life, each.life.plan
            if each.cause != IDLE or life.turning_off_at is None:
                continue
            acted = acted_at(life, world.end)
            settings, wait = plan.idle_s + plan.grace_s, 0 if zeros else LATEST_S
            seconds = (
                settings,
                wait,
                acted - life.in_service_at - settings - wait,
                life.turning_off_at - acted,
            )
            found.append(Waste(tuple(each * plan.usd_per_hour / 3600 for each in seconds), zeros))
    return found


def table(wastes: list[Waste]) -> str:
    """Return the table of docs/explanation/guard.md: medians and 95th percentiles."""
    groups = {
        "all": wastes,
        "zeros": [each for each in wastes if each.zeros],
        "no zeros": [each for each in wastes if not each.zeros],
    }
    rows = [("total", [[each.total for each in group] for group in groups.values()])]
    rows += [
        (cause, [[each.usd[place] for each in group] for group in groups.values()])
        for place, cause in enumerate(CAUSES)
    ]
    head = [f"| USD: median (95%) | {' | '.join(f'{n} ({len(g):,})' for n, g in groups.items())} |"]
    head.append("|---|---:|---:|---:|")
    return "\n".join([*head, *(f"| {name} | {' | '.join(map(_shown, columns))} |" for name, columns in rows)])


def _shown(values: list[float]) -> str:
    return f"{quantile(values, 0.5):,.0f} ({quantile(values, 0.95):,.0f})"
