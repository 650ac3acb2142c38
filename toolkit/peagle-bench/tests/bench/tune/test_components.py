from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from peagle_bench.tune.arms import HostPlan, arm_spec, host_plan, label
from peagle_bench.tune.choice import spread
from peagle_sm.core.errors import SpecError
from peagle_sm.core.plan.resolve import Context
from peagle_sm.core.planning import Plan, make_plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec

ROLE = "arn:aws:iam::123456789012:role/peagle"
NOW = datetime(2026, 11, 20, tzinfo=UTC)
CONTEXT = Context("123456789012", "us-east-1")


def plans(instance: str, ks: tuple[int, ...] = (1, 2, 3, 4, 5, 7, 11), tp: int = 1) -> dict[str, Plan]:
    """Plans of arms, each made a second after the one before."""
    spec = EndpointSpec(
        name="gpt",
        model="gpt-oss-20b",
        accept_eula=True,
        execution_role_arn=ROLE,
        scheduler_role_arn=ROLE,
        serving={"tensor_parallel_size": tp},
        placement={"instance_types": [instance]},
    )
    specs = {"none": arm_spec(spec, "none", None)} | {
        label("p-eagle", k): arm_spec(spec, "p-eagle", k) for k in ks
    }
    times = [replace(CONTEXT, now=NOW + timedelta(seconds=number)) for number in range(len(specs))]
    return {arm: make_plan(one, time) for time, (arm, one) in zip(times, specs.items(), strict=True)}


@pytest.fixture(scope="module")
def host() -> HostPlan:
    return host_plan("gpt", plans("ml.p5.48xlarge"))


def sent(host: HostPlan, operation: str) -> list[dict[str, Any]]:
    """Parameters of each request of one operation."""
    return [request.parameters for request in host.requests if request.operation == operation]


def test_eight_arms_stand_on_one_instance(host: HostPlan) -> None:
    assert len(sent(host, "create_inference_component")) == len(sent(host, "create_model")) == 8
    (config,) = sent(host, "create_endpoint_config")
    (variant,) = config["ProductionVariants"]
    assert variant["InitialInstanceCount"] == 1
    assert "ModelName" not in variant
    assert config["ExecutionRoleArn"] == ROLE
    for component in sent(host, "create_inference_component"):
        needs = component["Specification"]["ComputeResourceRequirements"]
        assert needs["NumberOfAcceleratorDevicesRequired"] == 1.0
        assert component["RuntimeConfig"] == {"CopyCount": 1}
        assert component["EndpointName"] == "tune-gpt"


def test_each_component_runs_the_model_of_its_k(host: HostPlan) -> None:
    environments = {
        model["ModelName"]: model["PrimaryContainer"]["Environment"] for model in sent(host, "create_model")
    }
    found = []
    for component in sent(host, "create_inference_component"):
        told = environments[component["Specification"]["ModelName"]].get("SM_VLLM_SPECULATIVE_CONFIG")
        found.append(json.loads(told)["num_speculative_tokens"] if told else 0)
    assert found == [0, 1, 2, 3, 4, 5, 7, 11]


def test_the_end_of_its_life_takes_the_components_first(host: HostPlan) -> None:
    schedules = sent(host, "create_schedule")
    actions = [schedule["Target"]["Arn"].rpartition(":")[2] for schedule in schedules]
    assert actions == ["deleteInferenceComponent"] * 8 + ["deleteEndpoint"]
    # The guard and `delete` find an endpoint's schedules by these names, and the guard by their time.
    numbered = [f"peagle-tune-gpt-lifetime-hard-{number}" for number in range(1, 9)]
    assert [schedule["Name"] for schedule in schedules] == [*numbered, "peagle-tune-gpt-lifetime"]
    assert len({schedule["StartDate"] for schedule in schedules}) == 1
    assert host.requests[: len(schedules)] == tuple(r for r in host.requests if r.service == "scheduler")


def test_botocore_takes_every_request(host: HostPlan) -> None:
    session = botocore.session.get_session()
    for request in host.requests:
        model = session.get_service_model(request.service)
        operation = "".join(word.title() for word in request.operation.split("_"))
        shape = model.operation_model(operation).input_shape
        assert shape is not None
        report = ParamValidator().validate(request.parameters, shape)
        assert not report.has_errors(), report.generate_report()


def test_everything_carries_the_hosts_name_so_that_delete_finds_it(host: HostPlan) -> None:
    def tags(body: dict[str, Any]) -> dict[str, str]:
        return {tag["Key"]: tag["Value"] for tag in body["Tags"]}

    for operation in (
        "create_model",
        "create_endpoint_config",
        "create_endpoint",
        "create_inference_component",
    ):
        for body in sent(host, operation):
            assert tags(body)["peagle-sm:endpoint"] == "tune-gpt"
    for body in sent(host, "create_model"):
        assert body["ModelName"].startswith("tune-gpt")


def test_too_few_accelerators_are_told() -> None:
    with pytest.raises(SpecError, match="8 arms need 16"):
        host_plan("gpt", plans("ml.p5.48xlarge", tp=2))


@pytest.mark.parametrize(
    ("max_k", "count", "ks"),
    [
        (11, 7, (1, 2, 3, 4, 5, 7, 11)),
        (11, 2, (3, 11)),
        (11, 3, (2, 5, 11)),
        (4, 7, (1, 2, 3, 4)),
        (5, 2, (1, 5)),
    ],
)
def test_the_k_are_spread_from_small_to_large(max_k: int, count: int, ks: tuple[int, ...]) -> None:
    assert spread(max_k, count) == ks


@pytest.mark.parametrize("max_k", range(2, 33))
def test_every_spread_rises_and_ends_at_the_largest(max_k: int) -> None:
    for count in range(2, 12):
        ks = spread(max_k, count)
        assert list(ks) == sorted(set(ks))
        assert ks[0] >= 1
        assert ks[-1] == max_k
        assert len(ks) == min(count, max_k)


def test_one_k_draws_no_curve() -> None:
    with pytest.raises(SpecError, match="2 or more"):
        spread(11, 1)
