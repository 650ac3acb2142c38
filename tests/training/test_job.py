"""The program as SageMaker starts it, given what it cannot train with: one message and status 2.

Nothing here needs the trainer's environment: a mistake is met before torch is loaded.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peagle_train.job import main
from peagle_train.launch import Fleet, gpus_of, read_fleet, torchrun_command, torchrun_environ
from peagle_train.plan import Folders, Plan, make_plan
from tests.training.support import Job, document, job, lines

Change = Callable[[Job], object]


def _hyper(**values: object) -> Change:
    return lambda given: given.hyperparameters.update(values)


MISTAKES: dict[str, tuple[Change, str]] = {
    "no data": (lambda given: given.write("training", ""), "the channel training is empty"),
    "no files": (
        lambda given: (given.data / "training" / "part.tokens.jsonl").rename(given.data / "training" / "x"),
        "the channel training has no *.tokens.jsonl",
    ),
    "a wrong line": (
        lambda given: given.write("training", lines([document(1), {"input_ids": []}])),
        "training/part.tokens.jsonl, line 2: loss_mask is not a list of whole numbers",
    ),
    "a wrong line held out": (
        lambda given: given.write("validation", "no\n"),
        "validation/part.tokens.jsonl, line 1: not JSON",
    ),
    "another tokenizer": (
        lambda given: given.write("training", lines([{"input_ids": [1, 9999], "loss_mask": [0, 1]}])),
        "it has another tokenizer",
    ),
    "a missing channel": (
        lambda given: shutil.rmtree(given.data / "target"),
        "the channel target is missing; needed: target and training",
    ),
    "a wrong channel": (
        lambda given: given.write("train", "{}"),
        "unknown channel train; allowed: target, training, validation, head",
    ),
    "no model": (
        lambda given: (given.data / "target" / "config.json").unlink(),
        "the target has no config.json; the folder has",
    ),
    "a model of another kind": (
        lambda given: (given.data / "target" / "config.json").write_text('{"architectures": ["BertModel"]}'),
        "the target's architecture is BertModel; allowed: LlamaForCausalLM",
    ),
    "a sequence beyond the model": (
        _hyper(sequence_length=10240),
        "sequence_length: found 10240; allowed: at most 8192, the target's context",
    ),
    "a head of another target": (
        lambda given: (given.data / "head" / "config.json").write_text(
            (given.data / "head" / "config.json")
            .read_text()
            .replace('"hidden_size": 256', '"hidden_size": 512')
        ),
        "it was trained for another target",
    ),
    "a head that contradicts": (
        _hyper(num_draft_layers=4),
        "num_draft_layers: found 4, but the head to start from has 2",
    ),
    "an unknown setting": (_hyper(nume_depths=8), "unknown hyperparameter nume_depths; allowed: num_depths"),
    "a wrong setting": (_hyper(learning_rate="fast"), "hyperparameter learning_rate: found 'fast'"),
    "too many experts' GPUs": (
        _hyper(expert_parallel_size=8),
        "expert_parallel_size: found 8; allowed: divisors of the job's 1 GPUs",
    ),
    "no head and no mask token": (
        lambda given: shutil.rmtree(given.data / "head"),
        "mask_token_id is missing",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_ends_with_one_message_and_no_traceback(name: str, tmp_path: Path) -> None:
    change, words = MISTAKES[name]
    given = job(tmp_path)
    change(given)
    done = given.run()
    assert done.returncode == 2, done.stderr
    assert words in given.failure
    assert done.stderr == f"error: {given.failure}\n"
    assert done.stdout == ""
    assert "\n" not in given.failure
    assert len(given.failure) <= 1024
    assert not (tmp_path / "model").exists()


def test_another_argument_is_answered_with_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve"]) == main([]) == 2
    words = capsys.readouterr().err.splitlines()
    assert words[0] == "usage: python -m peagle_train train; found serve"
    assert words[1].endswith("found nothing")


def plan(tmp_path: Path, world: int = 1, **hyperparameters: Any) -> Plan:
    given = job(tmp_path / "ml", **hyperparameters)
    given.prepare()
    return make_plan(Folders(given.root), tmp_path, world)


def test_the_steps_of_a_run(tmp_path: Path) -> None:
    created = plan(tmp_path, grad_accumulation_steps=4, epochs=2)  # 24 documents
    assert (created.batches, created.steps, created.documents_a_step) == (48, 12, 4)
    assert [created.epoch_at(step) for step in (1, 6, 7, 12)] == [1, 1, 2, 2]
    assert [step for step in range(1, 13) if created.ends_an_epoch(step)] == [6, 12]


def test_most_steps_are_a_limit(tmp_path: Path) -> None:
    assert plan(tmp_path / "a", grad_accumulation_steps=4, max_steps=3).steps == 3
    assert plan(tmp_path / "b", grad_accumulation_steps=4, max_steps=300).steps == 6
    assert plan(tmp_path / "c", grad_accumulation_steps=5).steps == 5, "the last one is not full"


def test_processes_share_the_steps(tmp_path: Path) -> None:
    assert plan(tmp_path, world=3, micro_batch_size=2, grad_accumulation_steps=2).steps == 2


def test_a_plan_goes_to_the_processes_as_it_was_checked(tmp_path: Path) -> None:
    created = plan(tmp_path, num_depths=5)
    assert pickle.loads(pickle.dumps(created)) == created


def test_how_often_a_run_saves_may_change_and_nothing_else(tmp_path: Path) -> None:
    runs = [
        plan(tmp_path / str(number), **more).run
        for number, more in enumerate([{}, {"checkpoint_every_steps": 3, "log_every_steps": 1}, {"seed": 1}])
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_the_fleet_is_what_sagemaker_says() -> None:
    answer = {"current_host": "algo-2", "hosts": ["algo-2", "algo-1"], "network_interface_name": "eth0"}
    fleet = read_fleet(answer, {}, gpus=8)
    assert fleet == Fleet(hosts=2, rank=1, processes=8, address="algo-1", port=7777, interface="eth0")
    assert fleet.world == 16
    assert read_fleet({}, {}, gpus=0).world == 1
    command = torchrun_command(fleet, Path("plan.json"))
    for words in ("--nnodes 2", "--node-rank 1", "--nproc-per-node 8", "--master-addr algo-1"):
        assert words in " ".join(command)
    environ = torchrun_environ(fleet, {}, Path("stop"))
    assert environ["NCCL_SOCKET_IFNAME"] == environ["GLOO_SOCKET_IFNAME"] == "eth0"


def test_several_hosts_on_one_machine_find_each_other() -> None:
    given = {"PEAGLE_TRAIN_MASTER_ADDR": "127.0.0.1", "PEAGLE_TRAIN_MASTER_PORT": "1234"}
    answer = {"current_host": "algo-1", "hosts": ["algo-1", "algo-2"], "network_interface_name": "eth0"}
    fleet = read_fleet(answer, given, gpus=0)
    assert (fleet.address, fleet.port, fleet.interface, fleet.processes) == ("127.0.0.1", 1234, None, 1)


def test_gpus_are_counted_without_torch(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia15", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert gpus_of(tmp_path, {}) == 3
    assert gpus_of(tmp_path, {"CUDA_VISIBLE_DEVICES": "0,2"}) == 2
    assert gpus_of(tmp_path, {"CUDA_VISIBLE_DEVICES": ""}) == 0
    assert gpus_of(tmp_path / "none", {}) == 0
