"""The price in a stack: `cdk synth` asks no AWS, and takes what `peagle-sm plan` kept."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from peagle_sm.aws.control.price_file import Amount, Kept, keep
from peagle_sm.core.errors import PlanRefused
from peagle_sm.core.planning import Plan
from peagle_sm.core.spec.endpoint_spec import parse_spec
from stacks.alarms import watches
from stacks.metrics import watched
from stacks.specs import StandIns, plan_for

LONG_AGO = datetime(2026, 11, 1, tzinfo=UTC)


def planned(instance: str, region: str, path: Path | None, more: str = "") -> Plan:
    spec = parse_spec(
        "name: demo\nmodel: gpt-oss-20b\n"
        f"placement: {{region: {region}, instance_types: [{instance}]}}\n{more}"
    )
    return plan_for(spec, region, StandIns(), None if path is None else {"PEAGLE_SM_PRICES": str(path)})


def kept(path: Path, region: str, instance: str, usd: float, date: str) -> Path:
    keep(path, region, instance, Kept(LONG_AGO, {"Host": Amount(usd, "USD", date)}))
    return path


def test_tag_budget_and_spend_alarm_use_the_kept_price(tmp_path: Path) -> None:
    path = kept(tmp_path / "prices.json", "eu-west-1", "ml.g7e.2xlarge", 5.5, "2026-11-01")
    plan = planned("ml.g7e.2xlarge", "eu-west-1", path, "lifecycle: {budget_usd: 44}")
    assert plan.tags()["peagle-sm:usd-per-hour"] == "5.5"
    spend = next(rule for rule in watches(watched(plan)) if rule.key == "spend")
    assert "at 5.5 USD an instance hour" in spend.text
    assert spend.threshold == pytest.approx(0.8 * 44)
    with pytest.raises(PlanRefused, match=r"8 h can cost 44\.00 USD"):
        planned("ml.g7e.2xlarge", "eu-west-1", path, "lifecycle: {budget_usd: 43}")
    with pytest.raises(PlanRefused, match=r"lifecycle\.usd_per_hour") as caught:
        planned("ml.g7e.2xlarge", "eu-west-1", None, "lifecycle: {budget_usd: 43}")
    assert "lifecycle.usd_per_hour" in str(caught.value.next_step)


def test_the_catalogue_s_newer_price_counts_instead_of_an_older_list_s(tmp_path: Path) -> None:
    path = kept(tmp_path / "prices.json", "us-east-1", "ml.g7e.2xlarge", 9.0, "2025-01-01")
    assert planned("ml.g7e.2xlarge", "us-east-1", path).usd_per_hour == 4.2


def test_an_upper_bound_is_in_the_tag_and_the_alarm() -> None:
    plan = planned("ml.p6-b200.48xlarge", "us-east-1", None)
    assert (plan.usd_per_hour, plan.price_at_most) == (142.416, True)
    assert plan.tags()["peagle-sm:usd-per-hour"] == "142.416"
    spend = next(rule for rule in watches(watched(plan)) if rule.key == "spend")
    assert "at most 142.416 USD an instance hour" in spend.text
    assert spend.threshold == pytest.approx(142.416 * 8 * 1.05, abs=0.01)
