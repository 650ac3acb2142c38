"""A proof beside a component based endpoint: arms as inference components, and nothing of them stays."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from peagle_bench.compare.deployments import Fleet
from peagle_bench.components import remove_components
from peagle_learn.arms import component_of, mark_of, running
from peagle_learn.commands.prove import render_prove_offer
from peagle_learn.core.spec import LearnSpec
from peagle_learn.promote import promote, promotions, rollback
from peagle_learn.prove import ProveDependencies, ProvePlan, plan_prove, prove
from peagle_sm.aws.control import lifetime
from peagle_sm.aws.control.sagemaker import (
    component_names,
    describe_component,
    describe_model,
    remove_tags,
)
from peagle_sm.aws.session.session import LocalTarget, Session, make_session
from peagle_sm.core.errors import BillableLeft, EndpointFailed, PlanRefused, ServiceFault
from peagle_sm.core.heads.reading import parse_manifest
from peagle_sm.core.plan.tags_and_schedules import hard_schedule_name
from peagle_sm.core.planning import Plan
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, dump_spec
from peagle_sm.service import delete
from peagle_sm.service.progress import Event, Pacing, Reporter
from peagle_sm.service.spec_to_plan import load_spec, plan_for
from tests.learn.test_data import bucket, made, session, spec_of, texts  # noqa: F401
from tests.learn.test_promote import store_proof
from tests.learn.test_prove import HEAD, stopped
from tests.local.serving import Server, eventually

NAME = "learn-arms"
ARMS = ("team-proof-candidate", "team-proof-plain")
SCHEDULES = {name: hard_schedule_name(name) for name in ARMS}


def served(**more: Any) -> EndpointSpec:
    return EndpointSpec(
        name=NAME,
        model="tiny-code",
        speculation={"mode": "p-eagle", "num_speculative_tokens": 7},
        serving={"env": {"SCRIPT_INVOKE": "openai"}},
        lifecycle={"idle": "scale-to-zero", "max_lifetime_hours": 8.0},
        **more,
    )


def create_as_a_stack(spec: EndpointSpec, session: Session) -> Plan:  # noqa: F811
    """Create what a stack creates for this spec: the model as a component of its endpoint."""
    sagemaker, plan = session.client("sagemaker"), plan_for(spec, session, stack=True)
    role = {
        "ExecutionRoleArn": session.admin("status")["role_arn"]
    }  # the guard, whose role it would be, is not here

    def status_of_component() -> str | None:
        found = describe_component(session, spec.name)
        return None if found is None else str(found["InferenceComponentStatus"])

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
def endpoint(session: Session, server: Server) -> Iterator[str]:  # noqa: F811
    sagemaker, plan = server.client("sagemaker"), create_as_a_stack(served(), session)
    yield NAME
    for component in component_names(session, NAME):
        sagemaker.delete_inference_component(InferenceComponentName=component)
    eventually(lambda: not component_names(session, NAME))
    sagemaker.delete_endpoint(EndpointName=NAME)
    sagemaker.delete_endpoint_config(EndpointConfigName=plan.names.config)
    sagemaker.delete_model(ModelName=plan.names.model)


@pytest.fixture
def plan(
    spec_of: Callable[..., LearnSpec],  # noqa: F811
    session: Session,  # noqa: F811
    tmp_path: Path,
) -> ProvePlan:
    spec = spec_of(texts(24), general=texts(10, seed=3))
    made(spec, session, tmp_path / "work")
    return plan_prove(spec, served(), str(HEAD), session, tmp_path / "work")


@pytest.fixture
def plans(plan: ProvePlan, session: Session, tmp_path: Path) -> dict[str, Plan]:  # noqa: F811
    """The plans of the arms, whose head is stored."""
    store_proof(plan, session, tmp_path)
    return {name: plan_for(spec, session) for name, spec in plan.arms.items()}


def asked(server: Server, component: str) -> dict[str, Any]:
    answer = server.client("sagemaker-runtime").invoke_endpoint(
        EndpointName=NAME,
        InferenceComponentName=component,
        ContentType="application/json",
        Body=json.dumps({"prompt": "x", "max_tokens": 2}),
    )
    return dict(json.loads(answer["Body"].read()))


def shown(session: Session) -> dict[str, Any]:  # noqa: F811
    """The serving component as SageMaker describes it."""
    found = describe_component(session, NAME) or {}
    return {key: value for key, value in found.items() if key != "ResponseMetadata"}


def left(session: Session, plan: ProvePlan) -> list[str]:  # noqa: F811
    """What exists of the arms: components, models and schedules."""
    found = []
    for name, spec in plan.arms.items():
        found += [f"component {name}"] if describe_component(session, spec.name) is not None else []
        model = plan_for(spec, session).names.model
        found += [f"model {name}"] if describe_model(session, model) is not None else []
        schedule = lifetime.get(session, hard_schedule_name(spec.name))
        found += [f"schedule {name}"] if schedule is not None else []
    return found


def test_the_offer_says_where_the_arms_run_why_and_that_they_add_nothing(plan: ProvePlan) -> None:
    offer = plan.offer
    assert offer.components == offer.deploys == ARMS
    assert (offer.usd_per_hour, offer.usd) == (0, 0)
    text = render_prove_offer(offer)
    assert (
        "creates  team-proof-candidate: inference component of learn-arms (takes\n"
        "           1,602 MB of 4,800 MB that are free on learn-arms)\n"
        "         team-proof-plain: inference component of learn-arms (takes 1,574\n"
        "           MB of 3,198 MB that are free on learn-arms)\n"
    ) in text
    assert (
        "price    components add nothing: learn-arms's instance is billed anyway.\n"
        "         While they exist, it is not scaled in, and what they take is not\n"
        "         free for more copies.\n"
    ) in text


def test_the_arms_are_measured_beside_the_serving_component_and_deleted(
    plan: ProvePlan,
    session: Session,  # noqa: F811
    server: Server,
    tmp_path: Path,
) -> None:
    seen: list[Any] = []
    before = shown(session)

    def measure(rounds: Any, *_: object, **__: object) -> Any:
        with rounds[0] as arms:
            seen.extend(each.arm for each in arms)
        assert component_names(session, NAME) == (NAME, *ARMS)
        assert all(asked(server, component)["choices"] for component in (NAME, *ARMS))
        raise ServiceFault("enough")

    stopped(plan, session, tmp_path / "work", measure)
    told = [(arm.name, arm.component, arm.mode, arm.num_speculative_tokens) for arm in seen]
    assert told == [
        ("plain", "team-proof-plain", "none", None),
        ("serving", NAME, "p-eagle", 7),
        ("candidate", "team-proof-candidate", "p-eagle", 7),
    ]
    assert left(session, plan) == []
    assert shown(session) == before
    assert asked(server, NAME)["choices"]


def test_a_killed_proof_s_components_are_found_by_the_next_and_deleted_by_their_schedules(
    plan: ProvePlan,
    plans: dict[str, Plan],
    session: Session,  # noqa: F811
    server: Server,
    tmp_path: Path,
) -> None:
    running(plans, plan.homes, session, fleet=Fleet, unguarded=True, progress=lambda event: None)
    # Nothing leaves the context, as if the process had been killed.
    again = plan_prove(plan.spec, served(), str(HEAD), session, tmp_path / "work")
    assert again.offer.leftovers == ARMS
    assert again.offer.components == ARMS, "what is deleted first takes no room"
    for name in ARMS:
        limit = lifetime.get(session, hard_schedule_name(name))
        assert limit is not None
        assert limit.expires_at is not None
        assert limit.enabled
        assert 0 < (limit.expires_at - session.now()).total_seconds() <= 3600
        lifetime.bring_forward(session, limit, session.now() + timedelta(seconds=3))
    eventually(lambda: component_names(session, NAME) == (NAME,))
    assert asked(server, NAME)["choices"]

    stopped(again, session, tmp_path / "work")
    assert left(session, plan) == []


def test_the_rest_of_a_killed_proof_whose_folder_is_lost_is_deleted_with_the_command_that_is_told(
    plan: ProvePlan,
    plans: dict[str, Plan],
    session: Session,  # noqa: F811
    tmp_path: Path,
) -> None:
    running(plans, plan.homes, session, fleet=Fleet, unguarded=True, progress=lambda event: None)
    for limit in limits(session):
        lifetime.bring_forward(session, limit, session.now() + timedelta(seconds=3))
    eventually(lambda: component_names(session, NAME) == (NAME,))
    with pytest.raises(PlanRefused) as refused:
        plan_prove(plan.spec, served(), str(HEAD), session, tmp_path / "new")
    assert "`peagle-sm delete team-proof-candidate`" in str(refused.value.next_step)
    delete(list(ARMS), session=session)
    again = plan_prove(plan.spec, served(), str(HEAD), session, tmp_path / "new")
    assert again.offer.components == ARMS
    stopped(again, session, tmp_path / "new")
    assert left(session, plan) == []


def limits(session: Session) -> list[lifetime.Lifetime]:  # noqa: F811
    found = [lifetime.get(session, hard_schedule_name(name)) for name in ARMS]
    return [limit for limit in found if limit is not None]


def test_a_component_of_another_proof_is_neither_left_over_nor_replaced_nor_deleted(
    plan: ProvePlan,
    plans: dict[str, Plan],
    session: Session,  # noqa: F811
    tmp_path: Path,
) -> None:
    theirs = running(plans, plan.homes, session, fleet=Fleet, unguarded=True, progress=lambda event: None)
    with theirs:
        before = left(session, plan)
        ends = [limit.expires_at for limit in limits(session)]
        assert len(ends) == len(ARMS)
        with pytest.raises(PlanRefused, match=r"inference component team-proof-.* no proof in this folder"):
            plan_prove(plan.spec, served(), str(HEAD), session, tmp_path / "elsewhere")
        mine = {
            name: plan_for(spec.model_copy(update={"tags": {"learn": mark_of("team", tmp_path)}}), session)
            for name, spec in plan.arms.items()
        }
        with pytest.raises(PlanRefused, match="exists by now; it was not changed"):
            running(mine, plan.homes, session, fleet=Fleet, unguarded=True, progress=lambda event: None)
        pacing = Pacing.for_session(session)
        mark = ("learn", mark_of("team", tmp_path))
        remove_components(session, SCHEDULES, mark, pacing, Reporter(None, pacing))
        assert left(session, plan) == before
        assert [limit.expires_at for limit in limits(session)] == ends
    assert left(session, plan) == []


def test_a_component_without_its_tag_is_deleted_by_the_run_that_created_it_and_keeps_its_schedule_else(
    plan: ProvePlan,
    plans: dict[str, Plan],
    session: Session,  # noqa: F811
) -> None:
    pacing = Pacing.for_session(session)
    with running(plans, plan.homes, session, fleet=Fleet, unguarded=True, progress=lambda event: None):
        before = left(session, plan)
        for name in ARMS:
            found = describe_component(session, name) or {}
            remove_tags(session, found["InferenceComponentArn"], ["learn"])
        for made_plan in plans.values():
            model = describe_model(session, made_plan.names.model)
            assert model is not None
            remove_tags(session, model.arn, ["learn"])
        mark = ("learn", plan.arms["plain"].tags["learn"])
        with pytest.raises(BillableLeft, match="without the tag learn that says whose it is"):
            remove_components(session, SCHEDULES, mark, pacing, Reporter(None, pacing))
        assert left(session, plan) == before
        assert len(limits(session)) == len(ARMS)
    assert left(session, plan) == []


def test_an_arm_is_deleted_by_the_run_that_created_it_although_its_tags_must_not_be_read(
    plan: ProvePlan,
    plans: dict[str, Plan],
    session: Session,  # noqa: F811
    server: Server,
) -> None:
    def denied(**_: object) -> None:
        said = {"Error": {"Code": "AccessDeniedException", "Message": "no sagemaker:ListTags"}}
        raise ClientError(said, "ListTags")  # type: ignore[arg-type]

    mine = make_session(local=LocalTarget.from_status(server.status.to_dict()))
    with running(plans, plan.homes, mine, fleet=Fleet, unguarded=True, progress=lambda event: None):
        mine.client("sagemaker").meta.events.register("before-call.sagemaker.ListTags", denied)
    assert left(session, plan) == []


def test_a_model_that_may_be_another_s_is_kept_and_named_with_the_command_that_deletes_it(
    plan: ProvePlan,
    session: Session,  # noqa: F811
    tmp_path: Path,
) -> None:
    store_proof(plan, session, tmp_path)
    plans = {"candidate": plan_for(plan.arms["candidate"], session)}
    name = plans["candidate"].names.model
    model = plans["candidate"].parameters("create_model")
    theirs = {key: value for key, value in model.items() if key != "Tags"}
    session.api("sagemaker").create_model(**theirs)
    events: list[str] = []

    def note(event: Event) -> None:
        events.append(event.message)

    with pytest.raises(ServiceFault):  # there is a model of that name
        running(plans, plan.homes, session, fleet=Fleet, unguarded=True, progress=note)
    assert left(session, plan) == ["model candidate"]
    assert f"`aws sagemaker delete-model --region {session.region} --model-name {name}`" in events[-1]
    session.api("sagemaker").delete_model(ModelName=name)


def test_a_component_whose_canary_found_a_fault_is_refused_with_that_reason(
    plan: ProvePlan,
    session: Session,  # noqa: F811
    tmp_path: Path,
) -> None:
    logs = session.api("logs")
    stream = {
        "logGroupName": "/aws/sagemaker/InferenceComponents/team-proof-candidate",
        "logStreamName": "canary",
    }

    def failing(*_: object, **__: object) -> Any:
        """Stand for a candidate that logged its canary's fault and then failed."""
        logs.create_log_stream(**stream)
        said = "peagle_gate: canary: parallel drafting has no effect; 900 drafts in 2560 tokens"
        logs.put_log_events(
            **stream, logEvents=[{"timestamp": int(session.now().timestamp() * 1000), "message": said}]
        )
        raise EndpointFailed("the component failed: no healthy /ping")

    proof = prove(
        plan,
        session,
        tmp_path / "work",
        confirm=lambda _: True,
        progress=lambda _: None,
        unguarded=True,
        dependencies=ProveDependencies(measure=failing),
    )
    assert proof.decision.reasons == ("canary: parallel drafting has no effect",)
    assert left(session, plan) == []


def test_an_arm_that_does_not_start_leaves_nothing_and_the_serving_component_alone(
    plan: ProvePlan,
    session: Session,  # noqa: F811
    server: Server,
    tmp_path: Path,
) -> None:
    store_proof(plan, session, tmp_path)
    arms = {
        name: spec.model_copy(
            update={
                "serving": spec.serving.model_copy(
                    update={"env": {"SCRIPT_PING": "never", "SCRIPT_EXIT_AFTER": "0.1"}}
                )
            }
        )
        for name, spec in plan.arms.items()
    }
    plans = {name: plan_for(spec, session) for name, spec in arms.items()}
    with pytest.raises(EndpointFailed, match="Inference component team-proof-candidate failed to start"):
        running(plans, plan.homes, session, fleet=Fleet, unguarded=True, progress=lambda event: None)
    assert left(session, plan) == []
    assert [name for plan in plans.values() if describe_model(session, (name := plan.names.model))] == []
    assert asked(server, NAME)["choices"]


def test_the_requests_name_the_arm_s_own_schedule_and_the_serving_endpoint(
    plan: ProvePlan,
    session: Session,  # noqa: F811
) -> None:
    arm = plan.arms["candidate"]
    made_plan = plan_for(arm, session)
    requests = component_of(made_plan, plan.homes["candidate"])
    schedule, model, component = requests.schedule, requests.model, requests.component
    assert schedule["Target"]["Arn"].endswith(":aws-sdk:sagemaker:deleteInferenceComponent")
    assert json.loads(schedule["Target"]["Input"]) == {"InferenceComponentName": arm.name}
    assert component["EndpointName"] == NAME
    assert component["Specification"]["ModelName"] == model["ModelName"]
    tags = {tag["Key"]: tag["Value"] for tag in component["Tags"]}
    assert tags["peagle-sm:managed-by"] == "peagle-sm"
    assert tags["peagle-sm:endpoint"] == arm.name


def test_a_stack_s_endpoint_is_changed_by_its_stack_and_then_recorded(
    plan: ProvePlan,
    session: Session,  # noqa: F811
    server: Server,
    tmp_path: Path,
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
