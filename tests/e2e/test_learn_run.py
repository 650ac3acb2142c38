"""`learn` with all real, small: the tutorial's files, the engine's answers, the real trainer, a proof."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from peagle_learn.core.proof import parse_proof
from peagle_learn.core.spec import parse_learn_spec
from peagle_sm.aws.control.sagemaker import component_names
from peagle_sm.service.spec_to_plan import load_spec
from sagemaker_local.paths import weights_dir
from scripts.bench import learn_demo
from scripts.bench.local_stack import LocalStack
from tests.cli.running import run
from tests.learn.test_stack_endpoint import create_as_a_stack

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]


def test_a_run_makes_data_and_a_head_and_continues_where_it_was(in_empty_folder: Path) -> None:
    tmp_path = in_empty_folder  # learn.yaml names the prompts beside it
    assert learn_demo.main([str(tmp_path), "--prompts", "24", "--steps", "3"]) == 0
    spec = parse_learn_spec((tmp_path / "learn.yaml").read_text(), "learn.yaml")
    served = load_spec(tmp_path / "peagle.yaml")
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        stack.deploy({served.name: served})
        port = str(stack.port)
        command = ("learn", "run", tmp_path / "learn.yaml", "--spec", tmp_path / "peagle.yaml")
        options = ("--yes", "--format", "json", "--local-port", port)
        first = run(*command, "--until", "data", *options)
        assert first.exit_code == 0, first.output
        second = run(*command, "--until", "train", *options)
        assert second.exit_code == 0, second.output
        steps = json.loads(second.stdout)["steps"]
        assert list(steps) == ["data", "train"]
        assert steps["data"] == json.loads(first.stdout)["steps"]["data"]
        assert steps["train"]["result"]["head"].endswith("/output/model.tar.gz")
        again = run(*command, "--until", "train", *options)
        assert json.loads(again.stdout)["steps"] == steps
        jobs = stack.session.client("sagemaker").list_training_jobs()["TrainingJobSummaries"]
        assert [each["TrainingJobStatus"] for each in jobs] == ["Completed"]
        ended = run(*command, *options)
        assert ended.exit_code == 9, ended.output  # 2 held-out prompts prove nothing
        print(ended.output, file=sys.stderr)
        (proof,) = tmp_path.rglob("proofs/*.json")
        found = parse_proof(proof.read_text(), proof.name)
        assert not found.decision.offered
        assert found.bound.data == steps["data"]["result"]["data"]
        (training,) = tmp_path.rglob("training.json")
        assert json.loads(training.read_text())["steps"] == 3
        (manifest,) = tmp_path.rglob("data/manifest.json")
        prompts = {each["name"]: each["prompts"] for each in json.loads(manifest.read_text())["sets"]}
        assert prompts["general, trained"] >= 2
        assert spec.data.general_trained > 0
        # The run installed the guard, which stays.
        assert [each for each in stack.delete_all() if "guard" not in each] == []


def test_a_head_is_proved_beside_the_component_of_a_stack_s_endpoint(in_empty_folder: Path) -> None:
    tmp_path = in_empty_folder
    assert learn_demo.main([str(tmp_path), "--prompts", "200"]) == 0
    spec = tmp_path / "peagle.yaml"
    spec.write_text(spec.read_text().replace("lifecycle:", "lifecycle:\n  idle: scale-to-zero"))
    with LocalStack(lambda line: print(line, file=sys.stderr)) as stack:
        session, served = stack.session, load_spec(spec)
        create_as_a_stack(served, session)
        options = ("--spec", spec, "--yes", "--format", "json", "--local-port", str(stack.port))
        made = run("learn", "run", tmp_path / "learn.yaml", "--until", "data", *options)
        assert made.exit_code == 0, made.output
        prove = ("learn", "prove", tmp_path / "learn.yaml", "--head", weights_dir() / "p-eagle")
        proved = run(*prove, *options)
        assert proved.exit_code == 9, proved.output  # the head that serves is not better than itself
        found = json.loads(proved.stdout)["evidence"]["held_out"]
        assert (found["acceptance"]["value"], found["identical"]) == (1, found["prompts"])
        assert component_names(session, served.name) == (served.name,)
