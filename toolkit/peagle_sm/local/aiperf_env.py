"""AIPerf's own Python environment: built once from ``peagle_sm/aiperf/aiperf.lock``, then reused.

AIPerf brings 140 packages and 1 GB whose pins clash with the toolkit's, so it lies in an environment of its
own (`locked_env`).

``python -m peagle_sm.local.aiperf_env`` builds it and prints the path of its Python.
"""

from pathlib import Path

from peagle_sm.local.engine_env import print_python
from peagle_sm.local.locked_env import Progress, ensure_locked
from peagle_sm.local.paths import PACKAGE
from peagle_sm.local.pins import version_in

LOCK = PACKAGE / "aiperf" / "aiperf.lock"
ENTRY_POINT = "peagle-sm = peagle_sm.aiperf:plugins.yaml"
_PLUGIN = "peagle_sm_plugin-0.dist-info"


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
    """Make a folder for PYTHONPATH in which AIPerf finds this package and its transport; return it.

    Only this package, by a link: its own site-packages would put its dependencies before AIPerf's.
    """
    directory.mkdir(parents=True, exist_ok=True)
    link = directory / PACKAGE.name
    link.unlink(missing_ok=True)
    link.symlink_to(PACKAGE, target_is_directory=True)
    about = directory / _PLUGIN
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: peagle-sm-plugin\nVersion: 0\n")
    (about / "entry_points.txt").write_text(f"[aiperf.plugins]\n{ENTRY_POINT}\n")
    return directory


if __name__ == "__main__":
    raise SystemExit(print_python(ensure_aiperf))
