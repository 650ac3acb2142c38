"""Where the arms of a proof run: components only if the endpoint's one instance has room for certain."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from peagle_learn.core.homes import Home, Needs, ServingHost, homes, needs_of
from peagle_sm.core.plan.resolve import Context
from peagle_sm.core.planning import Plan, make_plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec

ROLE = "arn:aws:iam::123456789012:role/peagle"
CONTEXT = Context("123456789012", "us-east-1", now=datetime(2026, 11, 20, tzinfo=UTC))
EIGHT = ServingHost("gpt", "ml.p5.48xlarge", True, 1, Needs(8, 0), Needs(6, 49_152), 300.0)
ONE = Needs(1, 8192)


def plan(instance: str, tp: int = 1, model: str = "gpt-oss-20b") -> Plan:
    spec = EndpointSpec(
        name="gpt",
        model=model,
        accept_eula=True,
        execution_role_arn=ROLE,
        scheduler_role_arn=ROLE,
        serving={"tensor_parallel_size": tp},
        placement={"instance_types": [instance]},
    )
    return make_plan(spec, CONTEXT)


def test_both_arms_take_free_accelerators_one_after_the_other() -> None:
    found = homes(EIGHT, {"candidate": ONE, "plain": ONE}, 240)
    assert found == {
        "candidate": Home("gpt", "takes 1 of 2 free accelerators of gpt", ONE),
        "plain": Home("gpt", "takes 1 of 1 free accelerators of gpt", ONE),
    }


def test_what_does_not_fit_beside_the_candidate_is_an_endpoint() -> None:
    host = replace(EIGHT, taken=Needs(7, 57_344))
    found = homes(host, {"candidate": ONE, "plain": ONE}, 240)
    assert found["candidate"].host == "gpt"
    assert found["plain"] == Home(None, "gpt has 0 of 8 accelerators free; needed: 1")


@pytest.mark.parametrize(
    ("host", "why"),
    [
        (ServingHost("gpt", "", has_components=False), "gpt runs a model, not inference components"),
        (
            replace(EIGHT, instances=2),
            "gpt runs 2 instances: where a component would run is not known",
        ),
        (
            replace(EIGHT, instances=0),
            "gpt runs 0 instances: where a component would run is not known",
        ),
        (replace(EIGHT, minutes_left=100.0), "gpt is deleted in 100 min, and the proof may last 240 min"),
        (replace(EIGHT, has=None), "the size of ml.p5.48xlarge is not in the catalogue"),
        (replace(EIGHT, taken=Needs(8, 65_536)), "gpt has 0 of 8 accelerators free; needed: 1"),
    ],
)
def test_every_other_endpoint_gets_no_component(host: ServingHost, why: str) -> None:
    assert homes(host, {"candidate": ONE}, 240) == {"candidate": Home(None, why)}


def test_without_accelerators_the_memory_decides() -> None:
    host = ServingHost("tiny", "ml.c7i.2xlarge", True, 1, Needs(0, 14_400), Needs(0, 9_600), None)
    found = homes(host, {"candidate": Needs(0, 1_620), "plain": Needs(0, 3_200), "third": None}, 60)
    assert found["candidate"].why == "takes 1,620 MB of 4,800 MB that are free on tiny"
    assert found["plain"] == Home(None, "tiny has 3,180 MB of memory free; needed: 3,200 MB")
    assert found["third"] == Home(None, "the memory that it needs is not known")


def test_an_arm_needs_what_its_plan_computed() -> None:
    assert needs_of(plan("ml.p5.48xlarge", tp=2)) == Needs(2, 8192)
    tiny = plan("ml.c7i.2xlarge", model="tiny-code")
    assert tiny.memory is not None
    whole = tiny.memory.weights_gb + tiny.memory.head_gb + tiny.memory.kv_cache_gb + tiny.memory.overhead_gb
    needs = needs_of(tiny)
    assert needs is not None
    assert needs.accelerators == 0
    assert 1500 < whole * 1000 <= needs.memory_mb < whole * 1000 + 1
