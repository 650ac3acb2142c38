from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from peagle_sm.cli.console import to_json
from peagle_sm.core.errors import PlanRefused
from tests.cli.samples import ERROR, WARNING, plan

TEXT = """\
Plan for coder in us-west-2, account 123456789012
The plan is refused: 1 error below

  model        qwen3-coder-30b-a3b-instruct
  speculation  p-eagle, 7 draft tokens
  instance     1 x ml.p5.48xlarge
  unused GPUs  7 on each instance: billed but not used
  price        12.50 USD/hour, 300.00 USD/day
  at most      50.00 USD in its lifetime of 4 h
  price from   a price list, 2026-11-20

Memory: fits
  weights  30.0 GB
  sum      44.0 of 80.0 GB

Requests, in this order
  scheduler.create_schedule         peagle-coder-lifetime
  sagemaker.create_model            coder-0a1b2c3d
  sagemaker.create_endpoint_config  coder-0a1b2c3d
  sagemaker.create_endpoint         coder

Findings
  error    draft-depth: K is 30, and the head was trained for 18
           next: Set speculation.num_speculative_tokens to 18 or less.
           source: model card, 2026-02-11
  warning  unused-gpus: 7 of 8 GPUs do nothing
           next: Set serving.data_parallel_size: 8.
           source: instance facts, 2026-11-20"""


def test_the_whole_plan() -> None:
    assert str(plan(WARNING, ERROR)) == TEXT


def test_a_local_plan_says_that_the_engine_runs_on_a_cpu() -> None:
    text = str(plan(local=True))
    assert "Plan for coder in us-west-2, the local SageMaker" in text
    assert "(Qwen3-Coder-30B-A3B-Instruct-FP8 on a CPU: " in text.replace("\n", " ")
    assert "Findings" not in text


def test_an_unknown_price_is_unknown_and_not_zero() -> None:
    unpriced = replace(plan(), usd_per_hour=None, usd_per_day=None, max_usd=None)
    text = str(unpriced)
    assert "price        unknown\n" in text
    assert "at most      unknown" in text
    assert unpriced.to_dict()["usd_per_hour"] is None


def test_the_plan_as_json() -> None:
    data = json.loads(to_json(plan(WARNING).to_dict()))
    assert data.pop("requests") == [asdict(one) for one in plan().requests]
    assert data.pop("memory")["lines"] == ["weights  30.0 GB", "sum      44.0 of 80.0 GB"]
    assert data == {
        "name": "coder",
        "model": "qwen3-coder-30b-a3b-instruct",
        "model_parameters_b": None,
        "mode": "p-eagle",
        "num_speculative_tokens": 7,
        "engine_settings": {},
        "account": "123456789012",
        "region": "us-west-2",
        "local": False,
        "assumed": [],
        "stand_in_weights": False,
        "figures_of": None,
        "names": {
            "endpoint": "coder",
            "config": "coder-0a1b2c3d",
            "model": "coder-0a1b2c3d",
            "schedule": "peagle-coder-lifetime",
            "component": None,
        },
        "spec_hash": "0a1b2c3d",
        "lock": None,
        "usd_per_hour": 12.5,
        "most_usd_per_hour": None,
        "update_usd_per_hour": None,
        "usd_per_day": 300.0,
        "max_usd": 50.0,
        "kept_until": None,
        "price_source": "a price list, 2026-11-20",
        "price_at_most": False,
        "unused_gpus": 7,
        "refused": False,
        "findings": [
            {
                "check": "unused-gpus",
                "severity": "warning",
                "message": "7 of 8 GPUs do nothing",
                "next_step": "Set serving.data_parallel_size: 8.",
                "source": "instance facts, 2026-11-20",
                "url": "",
                "expires": None,
            }
        ],
    }


def test_a_warning_does_not_refuse() -> None:
    plan(WARNING).refuse_errors()


def test_an_error_refuses_with_code_3_and_the_remedy() -> None:
    with pytest.raises(PlanRefused, match="K is 30") as caught:
        plan(WARNING, ERROR).refuse_errors()
    assert caught.value.exit_code == 3
    assert caught.value.next_step == ERROR.next_step
    assert "draft-depth" in {finding["check"] for finding in caught.value.details["findings"]}


def test_a_refusal_below_the_shown_plan_does_not_repeat_its_findings() -> None:
    with pytest.raises(PlanRefused) as caught:
        plan(WARNING, ERROR).refuse_errors(shown=True)
    assert str(caught.value) == "The plan is refused: draft-depth"
    assert "draft-depth" in {finding["check"] for finding in caught.value.details["findings"]}
