"""The same code over HTTP: an unmodified boto3 against the local SageMaker with scripted engines."""

from __future__ import annotations

import itertools
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from peagle_sm.aws.control import lifetime
from peagle_sm.aws.session.session import Session
from peagle_sm.core.errors import (
    BillableLeft,
    EndpointFailed,
    NotFound,
    ServiceFault,
    SpecError,
)
from peagle_sm.core.plan.tags_and_schedules import schedule_name
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service import (
    Endpoint,
    Event,
    Pacing,
    connect,
    delete,
    deploy,
    leftovers,
    list_endpoints,
    logs,
    status,
    update,
)
from tests.local.serving import Server, eventually

_numbers = itertools.count(1)


@pytest.fixture
def pacing(local: Session) -> Pacing:
    return replace(Pacing.for_session(local), poll_s=0.05)


def _spec(**script: str) -> EndpointSpec:
    env = {f"SCRIPT_{key.upper()}": value for key, value in script.items()}
    return EndpointSpec(
        name=f"svc-{next(_numbers)}",
        model="tiny-code",
        speculation={"mode": "p-eagle", "num_speculative_tokens": 7},
        serving={"env": env},
    )


@pytest.fixture
def endpoint(local: Session, pacing: Pacing) -> Iterator[Endpoint]:
    with deploy(_spec(), session=local, pacing=pacing, unguarded=True) as endpoint:
        yield endpoint


def test_from_a_spec_to_an_endpoint_and_back_to_nothing(local: Session, pacing: Pacing) -> None:
    spec = _spec(invoke="sse", chunks="3")
    events: list[Event] = []
    endpoint = deploy(spec, session=local, pacing=pacing, unguarded=True, progress=events.append)
    assert events[-1].phase == "ready"
    row = next(one for one in list_endpoints(local) if one.name == spec.name)
    assert (row.status, row.mode, row.num_speculative_tokens) == ("InService", "p-eagle", 7)
    assert (row.usd_per_hour, row.spent_usd) == (0.0, 0.0)
    assert len(row.resources) == 4
    with endpoint.stream(prompt="def f():", max_tokens=8) as stream:
        assert "".join(chunk.text for chunk in stream) == "token0 token1 token2 "
    assert stream.summary.total_ms > 0
    report = endpoint.delete()
    assert len(report.deleted) == 4
    assert report.leftovers == ()
    assert not [one for one in leftovers(local) if spec.name in one]


def test_status_shows_the_engine_behind_it(endpoint: Endpoint) -> None:
    result = endpoint.status()
    assert result.config_name == result.config_asked
    assert result.lifetime is not None
    assert result.engine is not None
    assert result.warnings == ()
    assert result.speculative_config is not None
    assert result.speculative_config["num_speculative_tokens"] == 7
    assert "vllm:num_requests_running" in endpoint.metrics()


def test_a_second_deploy_takes_up_what_is_there(local: Session, pacing: Pacing) -> None:
    spec = _spec()
    with deploy(spec, session=local, pacing=pacing, unguarded=True) as first:
        created = first.status().summary.created_at
        with deploy(spec, session=local, pacing=pacing, unguarded=True) as again:
            assert again.status().summary.created_at == created
        with connect(spec.name, session=local):
            pass
        assert first.status().summary.status == "InService", "what served before stays"
    assert not [one for one in leftovers(local) if spec.name in one]


def test_a_failed_deploy_quotes_its_own_engine_and_not_an_earlier_one(local: Session, pacing: Pacing) -> None:
    name = _spec().name
    for reason in ("the first reason", "the second reason"):
        spec = _spec(ping="never", exit_after="0.1", exit_line=reason).model_copy(update={"name": name})
        with pytest.raises(EndpointFailed) as caught:
            deploy(spec, session=local, pacing=pacing, unguarded=True)
    text = "\n".join(caught.value.details["log_tail"])
    assert "the second reason" in text
    assert "the first reason" not in text


def test_the_lines_of_a_component_s_engine_are_the_endpoint_s_log(server: Server, local: Session) -> None:
    """SageMaker writes them to the component's group; that of the endpoint has none."""
    name, client = f"svc-{next(_numbers)}", server.client("logs")
    group = f"/aws/sagemaker/InferenceComponents/{name}"  # the component of a stack has the endpoint's name
    client.create_log_group(logGroupName=group)
    client.create_log_stream(logGroupName=group, logStreamName="AllTraffic/i-1")
    line = {"timestamp": int(time.time() * 1000), "message": "ValueError: no such head"}
    client.put_log_events(logGroupName=group, logStreamName="AllTraffic/i-1", logEvents=[line])
    assert [each.message for each in logs(name, session=local)] == ["ValueError: no such head"]


@pytest.mark.parametrize(("code", "kind"), [(400, SpecError), (500, ServiceFault)])
def test_the_engines_answers_become_typed_errors(
    endpoint: Endpoint, code: int, kind: type[Exception]
) -> None:
    script = {"SCRIPT_INVOKE": f"status:{code}", "SCRIPT_BODY": '{"error": {"message": "bad K"}}'}
    for send in (endpoint.invoke, endpoint.stream):
        with pytest.raises(kind, match=f"{code}.*bad K"):
            send({"prompt": "x", "script": script})


def test_what_does_not_exist(local: Session, pacing: Pacing) -> None:
    absent = Endpoint("nope", local)
    for ask in (
        lambda: absent.invoke(prompt="x"),
        lambda: absent.stream(prompt="x"),
        lambda: status("nope", session=local),
        lambda: delete(["nope"], session=local, pacing=pacing),
        lambda: delete(["nope-*"], session=local, pacing=pacing),
        absent.metrics,
    ):
        with pytest.raises(NotFound, match="nope"):
            ask()


def test_two_ctrl_c_hand_the_endpoint_to_its_lifetime_limit_which_really_ends_it(
    local: Session, pacing: Pacing
) -> None:
    spec = _spec(ping="3")
    pressed: list[str] = []

    def press(event: Event) -> None:
        first = not pressed and event.phase == "waiting"
        second = len(pressed) == 1 and event.phase == "cleanup"
        if first or second:
            pressed.append(event.phase)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(BillableLeft, match="moved to now") as caught:
        deploy(spec, session=local, pacing=pacing, unguarded=True, progress=press)
    assert caught.value.next_step == f"peagle-sm delete {spec.name} --yes{local.command_flags()}"
    # Creating refuses the first attempt; the schedule comes again.
    eventually(lambda: status(spec.name, session=local).summary.status != "Creating")

    def gone() -> bool:
        advance(local, 660)
        return not any(one.name == spec.name and one.status != "Orphaned" for one in list_endpoints(local))

    eventually(gone, seconds=60)
    delete([spec.name], session=local, pacing=pacing)
    assert not [one for one in leftovers(local) if spec.name in one]


def test_a_rollback_after_the_old_end_of_the_lifetime_still_leaves_an_end(
    local: Session, pacing: Pacing
) -> None:
    name = f"svc-{next(_numbers)}"
    deploy(_spec().model_copy(update={"name": name}), session=local, pacing=pacing, unguarded=True)
    limit = lifetime.get(local, schedule_name(name))
    assert limit is not None
    lifetime.move(local, limit, local.now() + timedelta(minutes=2))
    moved: list[Event] = []

    def pass_time(event: Event) -> None:
        if event.phase == "endpoint" and not moved:
            moved.append(event)
            advance(local, 900)

    fails = _spec(ping="never", exit_after="0.1", exit_line="ValueError: no such head")
    with pytest.raises(EndpointFailed, match="SageMaker rolled back") as caught:
        update(
            fails.model_copy(update={"name": name}),
            session=local,
            pacing=pacing,
            unguarded=True,
            progress=pass_time,
        )
    assert not caught.value.details.get("left")
    limit = lifetime.get(local, schedule_name(name))
    assert limit is not None
    assert limit.expires_at is not None
    assert limit.expires_at < local.now() + timedelta(minutes=2), "the lifetime of the update was kept"
    delete([name], session=local, pacing=pacing)


def advance(session: Session, seconds: int) -> None:
    """Move the local clock."""
    body = f'{{"advance_seconds": {seconds}}}'.encode()
    with urllib.request.urlopen(f"{session.local_url}/_peagle/clock", data=body, timeout=10):
        pass
