"""What a notebook shows of a plan."""

from __future__ import annotations

from peagle_sm.core.plan.resolve import Context
from peagle_sm.core.planning import make_plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from tests.core.support import LOCAL


def test_a_plan_in_a_notebook() -> None:
    spec = EndpointSpec(name="demo", model="tiny-code", speculation={"mode": "p-eagle"})
    shown = str(make_plan(spec, LOCAL))
    head, fields, _, requests, *_ = shown.split("\n\n")
    assert head == "Plan for demo in us-east-1, the local SageMaker"
    assert "  speculation  p-eagle, 11 draft tokens" in fields.splitlines()
    assert [line.split()[0] for line in requests.splitlines()[1:]] == [
        "scheduler.create_schedule",
        "sagemaker.create_model",
        "sagemaker.create_endpoint_config",
        "logs.create_log_group",
        "logs.put_retention_policy",
        "sagemaker.create_endpoint",
    ]


def test_a_plan_that_would_be_refused_says_so_first() -> None:
    spec = EndpointSpec(name="demo", model="tiny-code", speculation={"mode": "p-eagle"})
    plan = make_plan(spec, Context(account="123456789012", region="us-east-1"))
    assert plan.refused
    card = plan.card()
    assert card.headline.startswith("The plan is refused: ")
    assert card.tables[-1].rows[0][0].strip() == "error"
