"""The trainer for real, on a CPU: exact partitions, an end on request, a head that drafts in vLLM.

Each test runs the program as SageMaker would, with the Python of the trainer's own environment.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peagle_sm.core.heads.inspect import inspect_head
from peagle_sm.service.heads.checking import local_folder
from peagle_train.target import tensors_of
from sagemaker_local.engine.env import ensure_engine
from sagemaker_local.engine.trainer_env import ensure_trainer
from sagemaker_local.paths import cache_dir, container_dir, weights_dir
from tests.training.support import Job, document, job, lines, records

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

CHECK = Path(__file__).with_name("trainer_check.py")
DRAFT_CHECK = Path(__file__).with_name("draft_check.py")
SHORT: dict[str, Any] = {"num_depths": 6, "grad_accumulation_steps": 2, "log_every_steps": 1, "max_steps": 6}
K = 7


@pytest.fixture(scope="module")
def python() -> Path:
    return ensure_trainer(lambda line: print(line, file=sys.stderr))


def checked(python: Path, script: Path, *arguments: object) -> str:
    done = subprocess.run(
        [str(python), str(script), *map(str, arguments)],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(container_dir()),
            "OMP_NUM_THREADS": "1",
            "VLLM_CACHE_ROOT": str(cache_dir() / "vllm" / python.parents[1].name),  # as the engine's
        },
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()[-1] if done.stdout else ""


def result(given: Job) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads((given.root / "model" / "training.json").read_text())
    return answer


def weights_hash(given: Job) -> str:
    return hashlib.sha256((given.root / "model" / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def passes(python: Path) -> dict[str, dict[str, Any]]:
    """Loss, gradients and lm_head rows by whose loss, attention and partitions."""
    results: dict[str, dict[str, Any]] = json.loads(checked(python, CHECK, "gradients"))
    return results


def test_partitions_give_the_same_gradients_and_counts_are_the_librarys(
    passes: dict[str, dict[str, Any]],
) -> None:
    assert len(passes) == 4 + 8
    library, ours = passes["library dense 1"], passes["ours dense 1"]
    for name, each in passes.items():
        assert each["relative"] < 1e-5, name
        assert each["largest"] < 1e-5, name
        assert each["loss"] == pytest.approx(library["loss"], abs=1e-5)
        assert each["accuracy"] == pytest.approx(library["accuracy"], abs=1e-6)
        if name.startswith("ours"):
            assert each["counted"]["accuracy"] == pytest.approx(each["accuracy"], abs=1e-6)
            assert each["counted"]["loss"] == pytest.approx(each["loss"], abs=1e-5)
            assert each["by_depth"] == ours["by_depth"], "each element is charged in one partition"
    assert ours["by_depth"] == sorted(ours["by_depth"], reverse=True)


def test_only_rows_with_a_loss_reach_the_lm_head(passes: dict[str, dict[str, Any]]) -> None:
    for name, each in passes.items():
        if name.startswith("ours"):
            assert each["rows"] == sum(each["by_depth"]), name
    for attention in ("dense", "structured"):
        library, ours = (passes[f"{whose} {attention} 8"] for whose in ("library", "ours"))
        assert ours["rows"] < 0.4 * library["rows"]
        assert ours["largest_part"] < 0.5 * library["largest_part"], "of the peak"


def test_master_weights_keep_the_steps_that_bfloat16_loses(python: Path) -> None:
    """12 steps of AdamW at 1e-5, with gradient checkpointing and 2 partitions; of weights near 1."""
    results = json.loads(checked(python, CHECK, "steps"))
    plain, masters = results["bfloat16"], results["masters"]
    assert plain["share_moved"] < 0.05
    assert plain["from_float32"] > 0.9
    assert masters["share_moved"] == 1
    assert masters["from_float32"] < 0.1
    assert masters["losses"][0] == plain["losses"][0], "the forward pass is the library's in bfloat16"
    assert masters["dtypes"] == ["torch.float32"]


def test_a_job_in_bfloat16_goes_on_exactly_and_writes_the_head_that_vllm_loads(
    python: Path, tmp_path: Path
) -> None:
    """What a GPU does, on a CPU: target and computation in bfloat16, what is trained in float32."""
    settings = {**SHORT, "max_steps": 4, "checkpoint_every_steps": 2, "learning_rate": 1e-5}
    settings |= {"gradient_checkpointing": "true", "sequence_partitions": 2}
    whole, stopped = (job(tmp_path / name, **settings) for name in ("whole", "stopped"))
    for given, stop in ((whole, 9), (stopped, 2), (stopped, 9)):
        given.prepare()
        checked(python, CHECK, "bfloat16", given.root, stop)
    assert weights_hash(stopped) == weights_hash(whole)
    shipped = tensors_of(weights_dir() / "p-eagle" / "model.safetensors")
    trained = tensors_of(whole.root / "model" / "model.safetensors")
    assert {name: (each["dtype"], each["shape"]) for name, each in trained.items()} == {
        name: (each["dtype"], each["shape"]) for name, each in shipped.items()
    }
    states = [
        json.loads(checked(python, CHECK, "state", given.root / "checkpoints" / "step-00000004"))
        for given in (whole, stopped)
    ]
    assert states[0] == states[1]
    assert states[0]["dtypes"] == ["torch.float32"]
    assert not [name for name in states[0]["names"] if "parametrization" in name]
    assert states[0]["beyond_bfloat16"] > 0.5, "the masters keep what bfloat16 cannot hold"


@pytest.fixture(scope="module")
def whole(python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, str]:
    """Six steps without an interruption, a checkpoint every two."""
    given = job(tmp_path_factory.mktemp("whole"), **SHORT, checkpoint_every_steps=2)
    done = given.run(python)
    assert done.returncode == 0, done.stdout + done.stderr
    return given, done.stdout


def test_a_job_says_what_cloudwatch_reads(whole: tuple[Job, str]) -> None:
    _, output = whole
    steps = records(output)
    assert [each["step"] for each in steps] == [f"{step}/6" for step in range(1, 7)]
    for each in steps:
        assert 0 < float(each["loss"]) < 20
        assert {f"accuracy_{depth}" for depth in range(1, 7)} <= set(each)
        assert float(each["tokens_per_second"]) > 0
    assert [each["step"] for each in records(output, "checkpoint")] == ["2", "4", "6"]
    assert [each["step"] for each in records(output, "validation")] == ["0", "6"]
    assert [each["step"] for each in records(output, "done")] == ["6"]


def test_the_head_is_whole_and_says_where_it_comes_from(whole: tuple[Job, str]) -> None:
    given, _ = whole
    shipped = tensors_of(weights_dir() / "p-eagle" / "model.safetensors")
    trained = tensors_of(given.root / "model" / "model.safetensors")
    assert {name: (each["dtype"], each["shape"]) for name, each in trained.items()} == {
        name: (each["dtype"], each["shape"]) for name, each in shipped.items()
    }
    target = json.loads((weights_dir() / "target" / "config.json").read_text())
    folder = local_folder(given.root / "model")
    report = inspect_head(folder, target=target, mode="p-eagle", num_speculative_tokens=5)
    assert [str(each) for each in report.faults if each.severity == "error"] == []
    created = result(given)
    assert created["schema"] == "peagle-training/1"
    assert created["steps"] == 6
    assert created["libraries"]["nemo-automodel"] == "0.7.0"
    assert created["data"]["training"]["documents"] == 24
    assert created["head"]["model.safetensors"] == weights_hash(given)
    assert created["started_from"]["fingerprint"]
    assert len(created["history"]["steps"]) == 6


def interrupted(
    given: Job, python: Path, when: str, end: Callable[[subprocess.Popen[str]], None]
) -> tuple[int, str]:
    """Start a job, do ``end`` as soon as a line begins with ``when``; return status and output."""
    process = subprocess.Popen(
        given.command(python),
        env=given.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if line.startswith(when):
            end(process)
    return process.wait(timeout=120), output


@pytest.mark.parametrize("signalled", ["the process", "its group"])
def test_a_stopped_job_goes_on_as_if_nothing_had_been(
    python: Path, whole: tuple[Job, str], tmp_path: Path, signalled: str
) -> None:
    given = job(tmp_path, **SHORT, checkpoint_every_steps=100)
    kill = os.kill if signalled == "the process" else os.killpg
    status, output = interrupted(
        given, python, "peagle-train step=1/6", lambda process: kill(process.pid, signal.SIGTERM)
    )
    assert status == 143, output
    (saved,) = records(output, "checkpoint")
    assert 1 <= int(saved["step"]) <= 5  # a step takes a third of a second, or much less
    assert given.failure == "", "a stop is no failure"
    done = given.run(python)
    assert done.returncode == 0, done.stdout + done.stderr
    assert records(done.stdout, "resumed") == [saved]
    assert records(done.stdout)[0]["step"] == f"{int(saved['step']) + 1}/6"
    assert weights_hash(given) == weights_hash(whole[0]), "to the bit what an uninterrupted run makes"
    assert len(result(given)["history"]["steps"]) == 6


def test_a_killed_job_loses_at_most_one_interval(
    python: Path, whole: tuple[Job, str], tmp_path: Path
) -> None:
    given = job(tmp_path, **SHORT, checkpoint_every_steps=2)
    early = "peagle-train checkpoint step=2"
    status, output = interrupted(given, python, early, lambda process: process.kill())
    assert status == -signal.SIGKILL, output
    done = given.run(python)
    assert done.returncode == 0, done.stdout + done.stderr
    (kept,) = (int(each["step"]) for each in records(done.stdout, "resumed"))
    reached = int(records(output)[-1]["step"].partition("/")[0])
    assert kept >= 2
    assert reached - kept <= 2
    assert weights_hash(given) == weights_hash(whole[0])


def test_the_checkpoint_of_another_run_is_refused(python: Path, whole: tuple[Job, str]) -> None:
    given, _ = whole
    other = Job(given.root, {**given.hyperparameters, "seed": 7})
    done = other.run(python)
    assert (done.returncode, done.stdout) == (2, "")
    assert "the checkpoint of step 6 is of another run: seed was 42, now it is 7" in other.failure


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def test_two_processes_train_one_head_and_stop_together(python: Path, tmp_path: Path) -> None:
    given = job(tmp_path, **{**SHORT, "grad_accumulation_steps": 1, "max_steps": 5, "sequence_partitions": 2})
    given.more = {
        "PEAGLE_TRAIN_PROCESSES": "2",
        "PEAGLE_TRAIN_MASTER_ADDR": "127.0.0.1",
        "PEAGLE_TRAIN_MASTER_PORT": str(free_port()),
    }
    status, output = interrupted(
        given, python, "peagle-train step=1/5", lambda process: os.kill(process.pid, signal.SIGTERM)
    )
    assert status == 143, output
    assert len(records(output, "checkpoint")) == 1
    done = given.run(python)
    assert done.returncode == 0, done.stdout + done.stderr
    assert result(given)["job"]["processes"] == 2
    assert records(done.stdout)[-1]["step"] == "5/5"


def test_a_target_that_two_processes_share_gives_the_same_losses(python: Path, tmp_path: Path) -> None:
    """FSDP2 over the processes; the 3 held-out documents leave one process without a last one of its own."""
    rows = []
    for shards in (1, 2):
        settings = {**SHORT, "grad_accumulation_steps": 1, "max_steps": 3, "sequence_partitions": 2}
        given = job(tmp_path / str(shards), **settings, target_shards=shards)
        given.write("validation", lines([document(number) for number in range(1000, 1003)]))
        given.more = {
            "PEAGLE_TRAIN_PROCESSES": "2",
            "PEAGLE_TRAIN_MASTER_ADDR": "127.0.0.1",
            "PEAGLE_TRAIN_MASTER_PORT": str(free_port()),
        }
        done = given.run(python)
        assert done.returncode == 0, done.stdout + done.stderr
        message = [*records(done.stdout), *records(done.stdout, "validation")]
        rows.append([float(each["loss"]) for each in message])
        recipe = result(given)["recipe"]
    assert len(rows[0]) >= 4
    assert rows[1] == pytest.approx(rows[0], rel=1e-5)
    assert recipe["distributed"] == {"strategy": "fsdp2", "tp_size": 1, "dp_replicate_size": 1}


def test_two_instances_find_each_other(python: Path, tmp_path: Path) -> None:
    hosts, port = ["algo-1", "algo-2"], str(free_port())
    more = {"PEAGLE_TRAIN_MASTER_ADDR": "127.0.0.1", "PEAGLE_TRAIN_MASTER_PORT": port}
    jobs = [job(tmp_path / host, **{**SHORT, "max_steps": 2, "grad_accumulation_steps": 1}) for host in hosts]
    running = []
    for given, host in zip(jobs, hosts, strict=True):
        given.more = more
        given.resources = {"current_host": host, "hosts": hosts, "network_interface_name": "eth0"}
        running.append(
            subprocess.Popen(
                given.command(python),
                env=given.environ(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    outputs = [process.communicate(timeout=300)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0], outputs
    assert (jobs[0].root / "model" / "model.safetensors").is_file()
    assert not (jobs[1].root / "model").exists(), "one instance writes the head"
    assert len(records(outputs[0])) == 2
    assert records(outputs[1]) == []


def test_a_head_from_nothing_is_of_the_asked_shape(python: Path, tmp_path: Path) -> None:
    given = job(
        tmp_path,
        head=False,
        **{**SHORT, "max_steps": 1},
        mask_token_id=1,
        aux_layer_ids="[1, 3, 5]",
        num_draft_layers=1,
        draft_num_attention_heads=8,
        draft_num_key_value_heads=4,
        gradient_checkpointing="true",
    )
    done = given.run(python)
    assert done.returncode == 0, done.stdout + done.stderr
    target = json.loads((weights_dir() / "target" / "config.json").read_text())
    report = inspect_head(local_folder(given.root / "model"), target=target, mode="p-eagle")
    assert [str(each) for each in report.faults if each.severity == "error"] == []


def test_the_same_settings_train_an_eagle3_head(python: Path, tmp_path: Path) -> None:
    """Of SmolLM2's EAGLE-3 head, too; the smallest rate shows how the output matrix begins."""
    settings = {**SHORT, "max_steps": 2, "num_depths": 3, "learning_rate": 1e-8, "draft_vocab_size": 512}
    given = job(tmp_path, head=False, **settings, mask_token_id=1, aux_layer_ids="[1, 3, 5]")
    command = given.command(python)[:-3]
    done = subprocess.run(
        [*command, "-m", "scripts.bench.stand_in.training", "eagle3"],
        cwd=container_dir().parent,
        env=_with_states(given, tmp_path / "states"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"accuracy_1", "accuracy_2", "accuracy_3"} <= set(records(done.stdout)[-1])
    target = weights_dir() / "target"
    config = json.loads((target / "config.json").read_text())
    folder = local_folder(given.root / "model")
    report = inspect_head(folder, target=config, mode="eagle3", num_speculative_tokens=3)
    assert [str(each) for each in report.faults if each.severity == "error"] == []
    assert float(checked(python, CHECK, "output", given.root / "model", target)) < 1e-2


def test_a_target_that_is_remembered_trains_the_same_head(python: Path, tmp_path: Path) -> None:
    """The first head computes the target's states and keeps them; the second one reads them."""
    states, heads, kept = tmp_path / "states", [], []
    for name in ("computed", "read"):
        settings = {**SHORT, "max_steps": 2, "num_depths": 3, "draft_vocab_size": 512}
        given = job(tmp_path / name, head=False, **settings, mask_token_id=1, aux_layer_ids="[1, 3, 5]")
        done = subprocess.run(
            [*given.command(python)[:-3], "-m", "scripts.bench.stand_in.training", "p-eagle"],
            cwd=container_dir().parent,
            env=_with_states(given, states),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        heads.append((given.root / "model" / "model.safetensors").read_bytes())
        kept.append({file: file.stat().st_mtime_ns for file in states.iterdir()})
    assert kept[0]
    assert kept[0] == kept[1], "nothing was computed again"
    assert heads[0] == heads[1]


def _with_states(given: Any, folder: Path) -> dict[str, str]:
    root = container_dir()
    return {
        **given.environ(),
        "PYTHONPATH": f"{root}:{root.parent}",
        "PEAGLE_TARGET_STATES": str(folder),
    }


@pytest.fixture(scope="module")
def recovered(python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A head that noise has damaged, trained on the target's own answers; and what vLLM drafts with each."""
    folder = tmp_path_factory.mktemp("recovered")
    given = job(
        folder / "ml",
        sequence_length=256,
        num_depths=8,
        learning_rate=1e-3,
        epochs=2,
        max_steps=60,
        grad_accumulation_steps=4,
        log_every_steps=10,
    )
    shipped, damaged = weights_dir() / "p-eagle", folder / "damaged"
    checked(python, CHECK, "damage", shipped, damaged)
    for file in damaged.iterdir():
        (given.data / "head" / file.name).write_bytes(file.read_bytes())
    documents, prompts = given.data / "training" / "part.tokens.jsonl", folder / "prompts.json"
    held_out = weights_dir() / "held-out.jsonl"
    checked(python, CHECK, "rollouts", weights_dir() / "target", held_out, documents, prompts)
    started = time.monotonic()
    done = given.run(python)
    assert done.returncode == 0, done.stdout + done.stderr
    engine = ensure_engine(lambda line: print(line, file=sys.stderr))
    heads = {"none": "none", "shipped": shipped, "damaged": damaged, "trained": given.root / "model"}
    answered = json.loads(checked(engine, DRAFT_CHECK, weights_dir() / "target", prompts, K, *heads.values()))
    by_name = {name: answered[str(place)] for name, place in heads.items()}
    print({name: round(each["acceptance_length"], 3) for name, each in by_name.items()})
    print(result(given)["history"]["validation"], f"{time.monotonic() - started:.0f} s")
    return by_name


def test_a_trained_head_drafts_in_vllm_and_the_answers_are_the_targets(recovered: dict[str, Any]) -> None:
    for name in ("shipped", "damaged", "trained"):
        assert recovered[name]["drafts"] > 100
        assert recovered[name]["tokens"] == recovered["none"]["tokens"], name


def test_a_damaged_head_recovers(recovered: dict[str, Any]) -> None:
    lengths = {name: recovered[name]["acceptance_length"] for name in ("shipped", "damaged", "trained")}
    assert lengths["damaged"] < lengths["shipped"] - 1, lengths
    assert lengths["trained"] > 1.1 * lengths["damaged"], lengths
