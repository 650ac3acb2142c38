"""The endpoint of a stack: its model is an inference component. A proof beside it, and its promotion."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peagle_learn.core.spec import LearnSpec
from peagle_learn.promote import promote, promotions, rollback
from peagle_learn.prove import ProvePlan, plan_prove
from peagle_sm.aws.control.sagemaker import component_names, describe_component
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import PlanRefused, ServiceFault
from peagle_sm.core.heads.reading import parse_manifest
from peagle_sm.core.planning import Plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, dump_spec
from peagle_sm.service import leftovers
from peagle_sm.service.spec_to_plan import load_spec, plan_for
from tests.learn.test_data import make_set, texts
from tests.learn.test_promote import store_proof
from tests.learn.test_prove import HEAD, stopped
from tests.local.serving import Server, eventually

NAME = "learn-arms"


def served(**more: Any) -> EndpointSpec:
    return EndpointSpec(
        name=NAME,
        model="tiny-code",
        speculation={"mode": "p-eagle", "num_speculative_tokens": 7},
        serving={"env": {"SCRIPT_INVOKE": "openai"}},
        lifecycle={"idle": "scale-to-zero", "max_lifetime_hours": 8.0},
        **more,
    )


def create_as_a_stack(spec: EndpointSpec, session: Session) -> Plan:
    """Create what a stack creates for this spec: the model as a component of its endpoint."""
    sagemaker, plan = session.client("sagemaker"), plan_for(spec, session, stack=True)
    role = {
        "ExecutionRoleArn": session.admin("status")["role_arn"]
    }  # the guard, whose role it would be, is not here

    def status_of_component() -> str | None:
        component = describe_component(session, spec.name)
        return None if component is None else str(component["InferenceComponentStatus"])

    for request in plan.requests:
        if request.service != "sagemaker":
            continue  # the arms look neither at its schedules nor at its scaling
        known = role if "ExecutionRoleArn" in request.parameters else {}
        getattr(sagemaker, request.operation)(**{**request.parameters, **known})
        if request.operation == "create_endpoint":
            waiter = sagemaker.get_waiter("endpoint_in_service")
            waiter.wait(EndpointName=spec.name, WaiterConfig={"Delay": 1})
    eventually(lambda: status_of_component() == "InService", seconds=300)  # a real engine starts in minutes
    return plan


@pytest.fixture(scope="module")
def endpoint(session: Session, server: Server) -> Iterator[str]:
    sagemaker, plan = server.client("sagemaker"), create_as_a_stack(served(), session)
    yield NAME
    for component in component_names(session, NAME):
        sagemaker.delete_inference_component(InferenceComponentName=component)
    eventually(lambda: not component_names(session, NAME))
    sagemaker.delete_endpoint(EndpointName=NAME)
    sagemaker.delete_endpoint_config(EndpointConfigName=plan.names.config)
    sagemaker.delete_model(ModelName=plan.names.model)


@pytest.fixture
def plan(spec_of: Callable[..., LearnSpec], session: Session, tmp_path: Path) -> ProvePlan:
    spec = spec_of(texts(24), general=texts(10, seed=3))
    make_set(spec, session, tmp_path / "work")
    return plan_prove(spec, served(), str(HEAD), session, tmp_path / "work")


def asked(server: Server, component: str) -> dict[str, Any]:
    answer = server.client("sagemaker-runtime").invoke_endpoint(
        EndpointName=NAME,
        InferenceComponentName=component,
        ContentType="application/json",
        Body=json.dumps({"prompt": "x", "max_tokens": 2}),
    )
    return dict(json.loads(answer["Body"].read()))


def shown(session: Session) -> dict[str, Any]:
    """The serving component as SageMaker describes it."""
    result = describe_component(session, NAME) or {}
    return {key: value for key, value in result.items() if key != "ResponseMetadata"}


def test_the_arms_are_measured_beside_the_serving_component_and_deleted(
    plan: ProvePlan, session: Session, server: Server, tmp_path: Path
) -> None:
    seen: list[Any] = []
    before = shown(session)

    def measure(rounds: Any, *_: object, **__: object) -> Any:
        with rounds[0] as arms:
            seen.extend(each.arm for each in arms)
        raise ServiceFault("enough")

    stopped(plan, session, tmp_path / "work", measure)
    assert [(arm.name, arm.endpoint, arm.component, arm.mode) for arm in seen] == [
        ("plain", "team-proof-plain", None, "none"),
        ("serving", NAME, NAME, "p-eagle"),
        ("candidate", "team-proof-candidate", None, "p-eagle"),
    ]
    assert [row for row in leftovers(session) if "team-proof-" in row] == []
    assert shown(session) == before
    assert asked(server, NAME)["choices"]


def test_a_stack_s_endpoint_is_changed_by_its_stack_and_then_recorded(
    plan: ProvePlan, session: Session, server: Server, tmp_path: Path
) -> None:
    store_proof(plan, session, tmp_path)
    path = tmp_path / "peagle.yaml"
    path.write_text(dump_spec(served()))
    sagemaker = server.client("sagemaker")
    arn = sagemaker.describe_endpoint(EndpointName=NAME)["EndpointArn"]

    def deployed() -> None:
        """What a deploy of the stack leaves in the endpoint's tags."""
        digest = plan_for(load_spec(path), session, stack=True).spec_hash
        sagemaker.add_tags(ResourceArn=arn, Tags=[{"Key": "peagle-sm:spec-hash", "Value": digest}])

    def written(fields: dict[str, Any]) -> None:
        path.write_text(dump_spec(served(head_uri=fields["head_uri"])).replace(
            "  mode: p-eagle\n", f"  mode: p-eagle\n  draft_head: {fields['speculation.draft_head']}\n"
        ))  # fmt: skip

    with pytest.raises(PlanRefused, match="belongs to stack Peagle-learn-arms, and only a deploy") as refusal:
        promote(plan.spec, path, session, progress=lambda event: None, unguarded=True)
    assert "cdk deploy Peagle-learn-arms -c spec=" in str(refusal.value.next_step)
    assert path.read_text() == dump_spec(served())
    written(refusal.value.details["fields"])
    deployed()
    promoted = promote(plan.spec, path, session, progress=lambda event: None, unguarded=True)
    assert promoted.state == "serves"
    place, _, key = plan.bound.head_uri.removeprefix("s3://").partition("/")
    manifest = session.client("s3").get_object(Bucket=place, Key=f"{key}manifest.json")["Body"].read()
    assert (parse_manifest(manifest).lineage or {})["data"] == plan.bound.data

    with pytest.raises(PlanRefused, match="only a deploy of the stack changes it"):
        rollback(plan.spec, path, session, progress=lambda event: None, unguarded=True)
    path.write_text(dump_spec(served()))
    deployed()
    assert rollback(plan.spec, path, session, progress=lambda event: None).state == "rolled-back"
    assert [each.state for each in promotions(plan.spec, session)] == ["rolled-back"]
