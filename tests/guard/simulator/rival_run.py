"""Runs a published rule through a world: a look every five minutes, and DeleteEndpoint where it says so."""

from __future__ import annotations

from tests.guard.simulator.fake_services.account import MANAGED_BY, Account
from tests.guard.simulator.fake_services.errors import AwsFault
from tests.guard.simulator.fake_services.sagemaker import Life
from tests.guard.simulator.judging.judge import IDLE, SWEEP_S, Ended
from tests.guard.simulator.judging.rivals import Look, Rival, nothing, tag_lifetime
from tests.guard.simulator.worlds.world import World

FIRST_PAGE = 100
"""The published Lambdas read one page."""


def run_rival(world: World, rival: Rival) -> list[Ended]:
    """Run a world under a published rule and return how each life ended."""
    account = Account.of(world)
    account.start()
    if rival.rule is nothing:
        account.events.run_until(world.end)
        return [_ended(life, "") for life in account.sagemaker.lives]
    last_creation = max(plan.created_at for plan in world.plans)
    moment = world.begin + world.seed % SWEEP_S
    while moment < world.end:
        account.events.run_until(moment)
        if account.functions_run(moment) and account.chance.random() >= world.lambdas.failing_share:
            _look(account, rival)
        if not account.sagemaker.live and moment > last_creation + 2 * SWEEP_S:
            break
        moment += SWEEP_S
    account.events.run_until(world.end)
    cause = "lifetime" if rival.rule is tag_lifetime else IDLE
    return [_ended(life, cause) for life in account.sagemaker.lives]


def _look(account: Account, rival: Rival) -> None:
    """One run of the rule; a failing call ends it, as it ends the published ones."""
    now = account.events.now
    try:
        account.call("ListEndpoints")
        for life in list(account.sagemaker.live.values())[:FIRST_PAGE]:
            if life.status(now) != "InService":
                continue
            look = look_at(account, life, now, metrics=rival.rule is not tag_lifetime)
            if rival.rule(look):
                account.call("DeleteEndpoint")
                life.components.clear()
                account.sagemaker.delete(life.plan.name, now, rival.name)
    except AwsFault:
        return


def look_at(account: Account, life: Life, now: int, *, metrics: bool = True) -> Look:
    """Return what a published rule sees of an endpoint.

    Raises:
        AwsFault: CloudWatch did not answer.
    """
    expires = None
    if life.tags.get(MANAGED_BY):
        expires = life.created_at + round(float(life.tags["peagle-sm:max-lifetime-hours"]) * 3600)
    if not metrics:
        return Look(now, expires, None, ())
    if account.metrics.failing(now):
        raise AwsFault("GetMetricStatistics: Internal failure")
    totals = tuple(_total(account, life, lane, now) for lane, _ in life.plan.traffic)
    return Look(now, expires, totals[0], totals)


def _total(account: Account, life: Life, lane: str, now: int) -> float | None:
    account.call("GetMetricStatistics")
    points = account.metrics.invocations(life.plan.name, lane, now - life.plan.idle_s, now, now)
    return sum(value for _, value in points) if points else None


def _ended(life: Life, cause: str) -> Ended:
    known = cause if life.ended_by not in ("", "user") else life.ended_by
    return Ended(life, known, None, 0, life.expires_at)
