"""The job from start to end: check, train, export; a message if one of them fails.

Exit statuses: 0 with a head in ``model/``; 2 for a mistake of the user; 143 after SIGTERM, with a checkpoint
from which the next start resumes; 1 for anything else. The error is written to ``output/failure``, which
SageMaker shows as the job's FailureReason.
"""

import hashlib
import json
import os
import pickle
import sys
import tempfile
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from peagle_train import Mistake
from peagle_train.heads import write_warm_start
from peagle_train.launch import (
    STOP_FILE,
    Fleet,
    Stop,
    die_with_parent,
    gpus_of,
    outcome,
    read_fleet,
    run_torchrun,
)
from peagle_train.plan import Folders, Plan, make_plan
from peagle_train.progress import PREFIX
from peagle_train.token_map import write_token_map

ROOT = "/opt/ml"
ROOT_VARIABLE = "PEAGLE_ML_ROOT"
SCHEMA = "peagle-training/1"
USAGE = "usage: python -m peagle_train train"
DONE, FAILED, MISTAKEN, STOPPED = 0, 1, 2, 143
_MOST_REASON = 1024
#: Nothing is fetched while a job runs, and no library draws bars into the log.
_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
#: torchao's compiled parts are for GPUs; elsewhere they only fail to load.
_WITHOUT_A_GPU = {"TORCHAO_FORCE_SKIP_LOADING_SO_FILES": "1"}


def main(arguments: list[str]) -> int:
    """Run the job (``train``), or one of its processes (``worker PLAN``, started by torchrun)."""
    if arguments[:1] == ["worker"] and len(arguments) == 2:
        return _worker(Path(arguments[1]))
    if arguments != ["train"]:
        print(f"{USAGE}; found {' '.join(arguments) or 'nothing'}", file=sys.stderr)
        return MISTAKEN
    folders = Folders(Path(os.environ.get(ROOT_VARIABLE) or ROOT))
    with tempfile.TemporaryDirectory(prefix="peagle-train-") as work:
        stop = Stop(Path(work) / "stop")
        stop.listen()
        return _train(folders, Path(work), stop, os.environ)


def _train(folders: Folders, work: Path, stop: Stop, environ: Mapping[str, str]) -> int:
    try:
        fleet = read_fleet(folders.document("resourceconfig.json"), environ, gpus_of(Path("/dev"), environ))
        plan = make_plan(folders, work, fleet.world)
        _print_plan(plan, fleet)
        if plan.head:
            write_warm_start(plan.head, plan.target, plan.warm_start)
        elif (plan.settings.draft_vocab_size or plan.target.vocab) < plan.target.vocab:
            write_token_map(plan)
        if fleet.world == 1:
            return run(plan, stop)
    except Mistake as error:
        return _failed(folders, MISTAKEN, str(error))
    except Exception as error:
        traceback.print_exc()
        return _failed(folders, FAILED, _internal(error))
    return _run_together(plan, fleet, stop, environ)


def _print_plan(plan: Plan, fleet: Fleet) -> None:
    training = plan.training
    print(
        f"{PREFIX} plan steps={plan.steps} documents={training.documents} tokens={training.tokens} "
        f"supervised_tokens={training.supervised} truncated={training.truncated} "
        f"processes={fleet.world} hosts={fleet.hosts}",
        flush=True,
    )


def _run_together(plan: Plan, fleet: Fleet, stop: Stop, environ: Mapping[str, str]) -> int:
    file, left = plan.work / "plan.pickle", plan.work / "outcome"
    file.write_bytes(pickle.dumps(plan))
    assert stop.file is not None
    status = run_torchrun(fleet, file, environ, stop.file)
    worker_status = outcome(left)
    if worker_status is not None and worker_status != DONE:
        return worker_status
    if status and not plan.folders.failure.exists():
        return _failed(
            plan.folders, FAILED, f"a process of the job ended with status {status}; its log has the cause"
        )
    return FAILED if status else DONE


def _worker(file: Path) -> int:
    die_with_parent()
    plan: Plan = pickle.loads(file.read_bytes())  # written by this job, into a folder of its own
    stop = Stop(Path(os.environ[STOP_FILE]))
    stop.listen()
    try:
        status = run(plan, stop)
    except Mistake as error:
        status = _failed(plan.folders, MISTAKEN, str(error))
    except Exception as error:
        traceback.print_exc()
        status = _failed(plan.folders, FAILED, _internal(error))
    if status != DONE:
        (plan.work / "outcome").write_text(str(status))
    # torchrun kills the other processes on any status but 0, also after a requested stop.
    return DONE if status == STOPPED else status


def run(plan: Plan, stop: Stop, kind: Any = None) -> int:
    """Train in this process, alone or as one of several; ``kind`` is the recipe's class, else P-EAGLE's."""
    os.environ |= _QUIET
    import torch

    if not torch.cuda.is_available():
        os.environ |= _WITHOUT_A_GPU
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))
    from peagle_train import on_cpu
    from peagle_train.recipe import HeadRecipe, Stopped

    on_cpu.install()
    recipe = (kind or HeadRecipe)(plan, stop, say=lambda line: print(line, flush=True))
    recipe.setup()
    try:
        recipe.train()
    except Stopped:
        if recipe.dist_env.is_main:
            print(f"{PREFIX} stopped step={recipe.runtime.global_step}", flush=True)
        return STOPPED
    if recipe.dist_env.is_main:
        _write_record(plan, recipe.write_result(), os.environ)
        print(f"{PREFIX} done step={recipe.runtime.global_step}", flush=True)
    return DONE


def _write_record(plan: Plan, trained: Mapping[str, Any], environ: Mapping[str, str]) -> None:
    """Write ``training.json`` beside the head: its data, settings, libraries and history."""
    weights = plan.folders.model / "model.safetensors"
    with weights.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    validation = plan.validation
    document = {
        "schema": SCHEMA,
        "job": {
            "name": environ.get("TRAINING_JOB_NAME"),
            "arn": environ.get("TRAINING_JOB_ARN"),
            "region": environ.get("AWS_REGION"),
            "processes": plan.world,
        },
        "target": {"architecture": plan.target.architecture, "fingerprint": plan.target_hash},
        "started_from": {"fingerprint": plan.head_hash} if plan.head else None,
        "data": {"training": plan.training.facts, "validation": validation.facts if validation else None},
        "head": {"model.safetensors": digest},
        **trained,
    }
    (plan.folders.model / "training.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _internal(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}"


def _failed(folders: Folders, status: int, reason: str) -> int:
    """Write the reason where SageMaker reads it; the first one stays."""
    print(f"error: {reason}", file=sys.stderr, flush=True)
    with suppress(OSError):
        folders.failure.parent.mkdir(parents=True, exist_ok=True)
        with folders.failure.open("x", encoding="utf-8") as opened:
            opened.write(reason[:_MOST_REASON])
    return status
