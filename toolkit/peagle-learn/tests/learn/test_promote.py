"""`learn promote` and `rollback` at the terminal, also after a kill."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from click.testing import Result

from peagle_learn.core.proof import decide
from peagle_learn.core.spec import LearnSpec
from peagle_learn.heads import stage_candidate
from peagle_learn.promote import promote, promotions, rollback
from peagle_learn.prove import ProvePlan, plan_prove, proof_uri
from peagle_learn.stored_data import origin_of
from peagle_learn.work_folder import only_one
from peagle_sm import __version__
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from peagle_sm.aws.storage.uploads import put_bytes
from peagle_sm.core.errors import Declined, Interrupted, ServiceFault
from peagle_sm.core.plan.environment import acceptance_namespace
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, dump_spec, parse_spec
from peagle_sm.service import delete, deploy, status
from peagle_sm.service.heads.checking import Sources
from peagle_sm.service.lifecycle.existing import UpdateOffer
from peagle_sm.service.progress import Event
from tests.cli.running import run
from tests.learn.conftest import keep_only, keys_in, write_spec
from tests.learn.core.test_proof import proof
from tests.learn.test_data import make_set, texts
from tests.learn.test_prove import HEAD
from tests.local.serving import Server

NAME = "learn-promote"


def served(instances: int = 1) -> EndpointSpec:
    return EndpointSpec(
        name=NAME,
        model="tiny-code",
        speculation={"mode": "p-eagle", "num_speculative_tokens": 7},
        serving={"env": {"SCRIPT_INVOKE": "openai"}},
        placement={"instance_count": instances},
    )


@pytest.fixture
def endpoint(session: Session) -> Iterator[str]:
    deploy(served(), session=session, unguarded=True)
    yield NAME
    delete([NAME], session=session)


@dataclass
class Project:
    """A folder with both specs, a staged head and its proof, and the command line."""

    folder: Path
    spec: LearnSpec
    session: Session
    port: int
    head: str

    def learn(self, *words: str, answers: str | None = None) -> Result:
        return run(
            "learn",
            words[0],
            self.folder / "learn.yaml",
            *words[1:],
            "--spec",
            self.folder / "peagle.yaml",
            "--unguarded",
            "--local-port",
            str(self.port),
            answers=answers,
        )

    @property
    def written(self) -> str:
        return (self.folder / "peagle.yaml").read_text()

    def plain(self, text: str) -> str:
        """A text without what differs from run to run."""
        for one, other in (
            (self.head[:16], "HEAD16"),
            (self.head[:8], "HEAD8"),
            (self.spec.bucket, "BUCKET/"),
        ):
            text = text.replace(one, other)
        text = re.sub(rf"{NAME}-[0-9a-f]{{8}}", f"{NAME}-HASH", text)
        return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", "TIME", text)


def store_proof(plan: ProvePlan, session: Session, folder: Path) -> None:
    """Copy the head to its prefix, and store a proof that offers it, as a measurement would."""
    sources = Sources(lambda: session)
    stage_candidate(
        plan.candidate, plan.bound.head_uri, session, sources, cache=folder / "cache", version=__version__
    )
    result = replace(proof(), bound=plan.bound)
    assert decide(result.evidence, result.thresholds).offered
    place, key = s3.split_uri(proof_uri(plan.spec, plan.bound.head))
    put_bytes(session, place, key, result.to_json().encode())


@dataclass(frozen=True)
class Prepared:
    """Data, a staged head and its proof in a bucket: the same for all tests."""

    spec: LearnSpec
    head: str
    keys: set[str]


@pytest.fixture(scope="module")
def prepared(session: Session, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder, bucket = tmp_path_factory.mktemp("prepared"), "learn-promote"
    session.client("s3").create_bucket(Bucket=bucket)
    spec = write_spec(folder, bucket, NAME, texts(24), texts(10, seed=3))
    deploy(served(), session=session, unguarded=True)
    make_set(spec, session, folder / "work")
    plan = plan_prove(spec, served(), str(HEAD), session, folder / "work")
    store_proof(plan, session, folder)
    delete([NAME], session=session)
    return Prepared(spec, plan.bound.head, keys_in(session, bucket))


@pytest.fixture
def project(
    prepared: Prepared, endpoint: str, session: Session, server: Server, tmp_path: Path
) -> Iterator[Project]:
    fields = prepared.spec.model_dump(mode="json", exclude_unset=True)
    (tmp_path / "learn.yaml").write_text(yaml.safe_dump(fields))
    (tmp_path / "peagle.yaml").write_text(dump_spec(served()))
    yield Project(tmp_path, prepared.spec, session, server.status.port, prepared.head)
    keep_only(prepared.keys, session, "learn-promote")


def test_promote_asks_and_rollback_brings_back_the_spec(project: Project) -> None:
    before = project.written
    declined = project.learn("promote", answers="n\n")
    assert declined.exit_code == 3
    assert project.written == before
    result = project.learn("promote", answers="y\n")
    assert result.exit_code == 0, result.stderr
    assert project.plain(result.stdout) == (
        "endpoint  learn-promote\n"
        "state     serves\n"
        "head      team-HEAD8\n"
        "head_uri  BUCKET/team/heads/HEAD16/\n"
    )
    shown = project.plain(result.stderr)
    assert "in-place: a second fleet starts" in shown
    assert "alarm peagle-learn-promote-update, peagle-learn-promote-acceptance" in shown
    assert "Promote the head on learn-promote? [y/N]" in shown
    assert f"head {project.plain(project.head[:16])} serves endpoint learn-promote" in shown

    back = project.learn("rollback", answers="y\n")
    assert back.exit_code == 0, back.stderr
    assert project.plain(back.stdout) == (
        "endpoint  learn-promote\nstate     rolled-back\nhead      the catalogue's\n"
    )
    assert "Restore the previous head on learn-promote? [y/N]" in back.stderr
    assert parse_spec(project.written) == parse_spec(before)


@pytest.mark.parametrize(
    "words",
    [("promote",), ("run",), ("prove", "--head", str(HEAD))],
    ids=lambda words: words[0],
)
def test_a_second_command_of_the_same_learn_yaml_is_refused_while_one_runs(
    project: Project, words: tuple[str, ...]
) -> None:
    before = status(NAME, session=project.session).config_name
    with only_one(project.folder / ".peagle-learn" / "team", "peagle-sm learn run"):
        result = project.learn(*words, "--yes")
    assert result.exit_code == 3
    assert f"process {os.getpid()} on " in result.stderr
    assert "(peagle-sm learn run) works in" in result.stderr
    assert status(NAME, session=project.session).config_name == before
    assert promotions(project.spec, project.session) == []


KILLED = """
import os, sys
from pathlib import Path
from peagle_sm.aws.session.local_server import session_for
from peagle_learn.core.spec import parse_learn_spec
from peagle_learn.promote import promote
learn, path, port, moment = sys.argv[1:]
session = session_for(os.environ, local=True, port=int(port))
def progress(event):
    if moment in (event.phase, event.status):
        os._exit(9)
promote(parse_learn_spec(learn), Path(path), session, progress=progress, unguarded=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "left"), [("Updating", 2), ("ready", 0)])
def test_a_promotion_that_is_killed_is_finished_and_its_alarms_stay_as_long_as_the_update(
    project: Project, moment: str, left: int
) -> None:
    spec, path = project.spec, project.folder / "peagle.yaml"
    answer = json.dumps(spec.model_dump(mode="json", exclude_unset=True))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, answer, str(path), str(project.port), moment],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert killed.returncode == 9, killed.stderr
    (begun,) = promotions(spec, project.session)
    assert begun.state == "begun"
    assert len(_alarms(project.session)) == left
    done = promote(spec, path, project.session, progress=lambda _: None, unguarded=True)
    assert done == replace(begun, state="serves")
    assert _alarms(project.session) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, ServiceFault])
def test_a_promotion_that_is_stopped_while_sagemaker_goes_on_keeps_both_alarms(
    project: Project, error: type[BaseException]
) -> None:
    spec, path, here = project.spec, project.folder / "peagle.yaml", project.session
    before = origin_of(here, NAME, None)

    def stopping(event: Event) -> None:
        if event.status == "Updating":
            raise error("no network")

    with pytest.raises((Interrupted, ServiceFault)) as stopped:
        promote(spec, path, here, progress=stopping, unguarded=True)
    assert _alarms(here) == [f"peagle-{NAME}-acceptance", f"peagle-{NAME}-update"]
    assert "Its alarms stay and can still roll it back" in (stopped.value.next_step or "")
    done = promote(spec, path, here, progress=lambda _: None, unguarded=True)
    assert done.state == "serves"
    assert _alarms(here) == []
    assert origin_of(here, NAME, None) == before, "answers are the target's, whatever head serves"


def test_no_alarm_exists_before_the_update_is_confirmed(project: Project) -> None:
    seen: list[list[str]] = []

    def no(offer: UpdateOffer) -> bool:
        assert offer.alarms == (f"peagle-{NAME}-update", f"peagle-{NAME}-acceptance")
        seen.append(_alarms(project.session))
        return False

    path = project.folder / "peagle.yaml"
    with pytest.raises(Declined):
        promote(project.spec, path, project.session, confirm=no, progress=lambda _: None, unguarded=True)
    assert seen == [[]]
    assert _alarms(project.session) == []


@pytest.mark.parametrize(("minutes", "threshold"), [((), 1.0), ((1.3, 1.3, 1.3, 1.3, 1.3, 1.3, 3.9), 1.17)])
def test_the_alarm_compares_with_live_traffic_and_not_with_greedy_prompts(
    project: Project, minutes: tuple[float, ...], threshold: float
) -> None:
    """The held-out prompts' own figure, 3.5 and more, would roll back any head at temperature 1."""
    client, now = project.session.client("cloudwatch"), project.session.now()
    for number, value in enumerate(minutes, start=2):
        moment = now - timedelta(minutes=number)
        datum = {"MetricName": "AcceptanceLength", "Timestamp": moment, "Value": value}
        client.put_metric_data(Namespace=acceptance_namespace(NAME), MetricData=[datum])
    path = project.folder / "peagle.yaml"
    with pytest.raises(Interrupted):
        promote(project.spec, path, project.session, progress=stopped_at_updating, unguarded=True)
    alarms = client.describe_alarms(AlarmNames=[f"peagle-{NAME}-acceptance"])["MetricAlarms"]
    assert [each["Threshold"] for each in alarms] == [pytest.approx(threshold)]


def stopped_at_updating(event: Event) -> None:
    if event.status == "Updating":
        raise KeyboardInterrupt


def test_a_rollback_after_a_stopped_promotion_brings_back_the_head_before(project: Project) -> None:
    spec, path, here = project.spec, project.folder / "peagle.yaml", project.session
    before = status(NAME, session=here).config_name
    with pytest.raises(Interrupted):
        promote(spec, path, here, progress=stopped_at_updating, unguarded=True)
    assert rollback(spec, path, here, progress=lambda event: None, unguarded=True).state == "rolled-back"
    assert status(NAME, session=here).config_name == before
    assert _alarms(here) == []


def test_a_promotion_after_a_stopped_rollback_brings_the_new_head(project: Project) -> None:
    spec, path, here = project.spec, project.folder / "peagle.yaml", project.session
    promote(spec, path, here, progress=lambda event: None, unguarded=True)
    new = status(NAME, session=here).config_name
    with pytest.raises(Interrupted):
        rollback(spec, path, here, progress=stopped_at_updating, unguarded=True)
    assert promote(spec, path, here, progress=lambda event: None, unguarded=True).state == "serves"
    assert status(NAME, session=here).config_name == new
    assert _alarms(here) == []


def _alarms(session: Session) -> list[str]:
    metric_alarms = session.api("cloudwatch").describe_alarms()["MetricAlarms"]
    return sorted(each["AlarmName"] for each in metric_alarms if NAME in each["AlarmName"])
