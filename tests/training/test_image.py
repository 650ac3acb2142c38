"""What the training image is built from: pinned by digest and lock, with nothing else."""

from __future__ import annotations

import re
import subprocess
import sys

from check_base import fault
from sagemaker_local.engine.installer import version_in
from sagemaker_local.engine.trainer_env import LOCK
from sagemaker_local.paths import container_dir
from scripts.lib.locks import read_pins
from tests.container.test_image_files import CONTAINER, DIGEST, of

TEXT = (CONTAINER / "Dockerfile.train").read_text(encoding="utf-8")
GPU_LOCK = container_dir() / "train-gpu.lock"
OF_THE_BASE = {"torch", "setuptools", "networkx", "sympy", "mpmath"}


def test_the_base_is_checked_before_anything_else() -> None:
    (run,) = of("RUN", TEXT)
    assert run.startswith('python3 check_base.py "${BASE_IMAGE}" "${TORCH_FLOOR}" torch &&')
    torch = (version_in(LOCK, "torch") or "").partition("+")[0]
    assert f"TORCH_FLOOR={torch}" in of("ARG", TEXT)


def test_packages_come_from_the_lock_by_their_hashes_and_no_code_is_built() -> None:
    (run,) = of("RUN", TEXT)
    assert "--no-deps --require-hashes --only-binary=:all:" in run
    assert "-r train-gpu.lock" in run


def test_the_image_has_what_the_local_job_has_and_torch_from_its_base() -> None:
    gpu, cpu = ({pin.key: pin.version for pin in read_pins(lock.read_text())} for lock in (GPU_LOCK, LOCK))
    assert gpu == {name: version for name, version in cpu.items() if name not in OF_THE_BASE}


def test_signals_reach_the_job_and_sagemaker_adds_its_argument() -> None:
    assert of("ENTRYPOINT", TEXT) == ['["python3", "-P", "-m", "peagle_train"]']
    assert of("CMD", TEXT) == []


def test_a_base_without_torch_ends_the_build() -> None:
    assert fault(f"pytorch/pytorch@{DIGEST}", "2.13.0+cu130", "2.13.0", "torch") is None
    message = fault(f"pytorch/pytorch@{DIGEST}", "2.12.1", "2.13.0", "torch")
    assert message == "the base image has torch 2.12.1; allowed: 2.13.0 and later"
    command = [sys.executable, str(CONTAINER / "check_base.py"), f"x@{DIGEST}", "2.13.0", "torch"]
    done = subprocess.run(command, capture_output=True, text=True)  # this environment has no torch
    assert (done.returncode, done.stderr) == (1, "error: the base image has no torch\n")


def test_the_program_needs_nothing_but_the_lock_before_it_trains() -> None:
    """What is imported without torch is what finds a user's mistakes."""
    for path in (CONTAINER / "peagle_train").glob("*.py"):
        if path.stem in ("recipe", "on_cpu", "masters"):
            continue
        outside = re.findall(
            r"^(?:from|import) (torch|safetensors|nemo_automodel|transformers)", path.read_text(), re.M
        )
        assert outside == [], path.name
