"""The Python environment of training jobs on a CPU: built once from ``sagemaker_local/trainer.lock``.

It is what the training image has, without CUDA: torch, transformers, NeMo AutoModel. The code that runs in
it, the package ``peagle_train``, is not installed: it lies in the container's folder, as in the image.

``python -m sagemaker_local.engine.trainer_env`` builds it and prints the path of its Python.
"""

from collections.abc import Mapping
from pathlib import Path

from sagemaker_local.engine.build import Progress
from sagemaker_local.engine.env import print_python
from sagemaker_local.engine.installer import FOREIGN
from sagemaker_local.engine.locked_env import ensure_locked
from sagemaker_local.paths import PACKAGE, container_dir

LOCK = PACKAGE / "trainer.lock"
ROOT_VARIABLE = "PEAGLE_ML_ROOT"
"""The training program takes this folder for SageMaker's ``/opt/ml``."""

PASSIVE = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
"""Threads of a training job on cores that others use: with two that spin, a step took five times as long."""


def ensure_trainer(progress: Progress, *, cache: Path | None = None) -> Path:
    """Return the Python of the trainer's environment, building it first where that is needed.

    Building takes about two minutes, 1.5 GB of disk and the network; later calls need none of them.

    Raises:
        EngineError: it cannot be built; the message ends with pip's last lines.
    """
    price = "two minutes and 1.5 GB"
    return ensure_locked("trainer", LOCK, price, progress, compiled=True, cache=cache)


def train_command(python: Path) -> list[str]:
    """Return what the training image runs when SageMaker starts it with the argument ``train``."""
    return [str(python), "-P", "-m", "peagle_train", "train"]


def train_environ(environ: Mapping[str, str], root: Path) -> dict[str, str]:
    """Return the variables for ``train_command``: these, without what leads another Python astray.

    ``root`` takes the place of ``/opt/ml``.
    """
    kept = {name: value for name, value in environ.items() if name not in FOREIGN}
    return kept | {"PYTHONPATH": str(container_dir()), ROOT_VARIABLE: str(root)}


if __name__ == "__main__":
    raise SystemExit(print_python(ensure_trainer))
