"""AIPerf's own Python environment: built once from ``sagemaker_local/aiperf.lock``, then reused.

AIPerf brings 140 packages and 1 GB whose pins clash with the toolkit's, so it lies in an environment of its
own (`locked_env`).

``python -m sagemaker_local.engine.aiperf_env`` builds it and prints the path of its Python.
"""

from importlib import resources
from importlib.metadata import entry_points
from pathlib import Path

from sagemaker_local.engine.build import Progress
from sagemaker_local.engine.env import print_python
from sagemaker_local.engine.installer import version_in
from sagemaker_local.engine.locked_env import ensure_locked
from sagemaker_local.errors import EngineError
from sagemaker_local.paths import PACKAGE

LOCK = PACKAGE / "aiperf.lock"
GROUP = "aiperf.plugins"
_PLUGINS = "sagemaker_local_plugins-0.dist-info"


def ensure_aiperf(progress: Progress, *, cache: Path | None = None) -> Path:
    """Return the Python of AIPerf's environment, building it first where that is needed.

    Building takes about two minutes, 1 GB of disk and the network; later calls need none of them.

    Raises:
        EngineError: it cannot be built; the message ends with pip's last lines.
    """
    return ensure_locked("aiperf", LOCK, "about two minutes and 1 GB", progress, cache=cache)


def aiperf_version() -> str:
    """Return the version of AIPerf that the lock names, for example ``0.13.0``."""
    version = version_in(LOCK, "aiperf")
    assert version is not None
    return version


def plugin_path(directory: Path) -> Path:
    """Create a folder for PYTHONPATH in which AIPerf finds the transports installed beside it; return it.

    Only the packages that register one (for the transport ``sagemaker``, peagle-sm), by a link: their own
    site-packages would put other dependencies before AIPerf's.

    Raises:
        EngineError: no installed package registers a transport, so AIPerf could not reach the endpoint.
    """
    directory.mkdir(parents=True, exist_ok=True)
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    if not points:
        raise EngineError(
            "AIPerf has no transport for SageMaker endpoints: no installed package registers one",
            next_step="install peagle-sm in the same environment, then start the server again",
        )
    for point in points:
        package = resources.files(point.module.partition(".")[0])
        link = directory / Path(str(package)).name
        link.unlink(missing_ok=True)
        link.symlink_to(str(package), target_is_directory=True)
    about = directory / _PLUGINS
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sagemaker-local-plugins\nVersion: 0\n")
    rows = "".join(f"{point.name} = {point.value}\n" for point in points)
    (about / "entry_points.txt").write_text(f"[{GROUP}]\n{rows}")
    return directory


if __name__ == "__main__":
    raise SystemExit(print_python(ensure_aiperf))
