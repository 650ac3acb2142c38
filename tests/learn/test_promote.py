"""`learn promote` over the local SageMaker: the run after a kill finishes it, and leaves no alarm."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from peagle_sm import __version__
from peagle_sm.aws.session.local_server import stand_in_weights
from peagle_sm.aws.session.session import Session
from peagle_sm.core.learn.proof import (
    Proof,
    ProofCheck,
    ProofEvidence,
    Ratio,
    SetEvidence,
    decide,
)
from peagle_sm.core.learn.spec import LearnSpec
from peagle_sm.core.spec.endpoint_spec import EndpointSpec, dump_spec
from peagle_sm.learn.heads import stage_candidate
from peagle_sm.learn.promote import promote, promotions
from peagle_sm.learn.prove import plan_prove, store_proof, thresholds_of
from peagle_sm.service import delete, deploy
from peagle_sm.service.heads.checking import Sources
from tests.learn.test_data import bucket, made, session, spec_of, texts  # noqa: F401
from tests.local.serving import Server

NAME = "learn-promote"
HEAD = stand_in_weights() / "p-eagle"
EVIDENCE = ProofEvidence(
    held_out=SetEvidence(40, Ratio(1.12, 1.08, 1.16), Ratio(1.1, 1.0, 1.2), 3.0, 3.36),
    general=SetEvidence(40, Ratio(1.0, 0.985, 1.015), Ratio(1.0, 0.95, 1.05), 3.0, 3.0),
    identity=(ProofCheck("greedy", True),),
)


def served() -> EndpointSpec:
    return EndpointSpec(
        name=NAME,
        model="tiny-code",
        speculation={"mode": "p-eagle", "num_speculative_tokens": 7},
        serving={"env": {"SCRIPT_INVOKE": "openai"}},
    )


@pytest.fixture(scope="module")
def endpoint(session: Session) -> Iterator[str]:  # noqa: F811
    deploy(served(), session=session, unguarded=True)
    yield NAME
    delete([NAME], session=session)


KILLED = """
import os, sys
from pathlib import Path
from peagle_sm.aws.session.local_server import session_for
from peagle_sm.core.learn.spec import parse_learn_spec
from peagle_sm.learn.promote import promote
learn, path, port = sys.argv[1:]
session = session_for(os.environ, local=True, port=int(port))
def progress(event):
    if event.phase == "ready":
        os._exit(9)
promote(parse_learn_spec(learn), Path(path), session, progress=progress, unguarded=True)
"""


@pytest.mark.slow
def test_a_promotion_that_is_killed_at_its_end_is_finished_and_leaves_no_alarm(
    endpoint: str,
    spec_of: Callable[..., LearnSpec],  # noqa: F811
    session: Session,  # noqa: F811
    tmp_path: Path,
    server: Server,
) -> None:
    spec = spec_of(texts(24), general=texts(10, seed=3))
    made(spec, session, tmp_path / "work")
    path = tmp_path / "peagle.yaml"
    path.write_text(dump_spec(served()))
    plan = plan_prove(spec, served(), str(HEAD), session, tmp_path / "work")
    opened = Sources(lambda: session)
    stage_candidate(
        plan.candidate, plan.bound.head_uri, session, opened, cache=tmp_path / "cache", version=__version__
    )
    wanted = thresholds_of(spec)
    at = session.now().isoformat(timespec="seconds")
    proof = Proof(plan.bound, wanted, EVIDENCE, decide(EVIDENCE, wanted), at, __version__)
    assert proof.decision.offered
    store_proof(spec, session, tmp_path / "work", proof)
    told = json.dumps(spec.model_dump(mode="json", exclude_unset=True))
    arguments = [told, str(path), server.url.rpartition(":")[2]]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert killed.returncode == 9, killed.stderr
    (begun,) = promotions(spec, session)
    assert begun.state == "begun"
    assert len(_alarms(session)) == 1
    done = promote(spec, path, session, progress=lambda _: None, unguarded=True)
    assert done == replace(begun, state="serves")
    assert _alarms(session) == []


def _alarms(session: Session) -> list[str]:  # noqa: F811
    found = session.api("cloudwatch").describe_alarms()["MetricAlarms"]
    return [each["AlarmName"] for each in found if NAME in each["AlarmName"]]
