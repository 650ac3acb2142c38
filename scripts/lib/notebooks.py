"""Execute the notebooks of docs/notebooks against their own local SageMaker, and write their outputs.

The kernel's environment is that of requirements/notebooks.lock, which has LangChain too; `peagle_sm` is this
checkout's. Tests execute them in the same way (tests/notebooks).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import distribution
from pathlib import Path

from sagemaker_local.engine.locked_env import ensure_locked
from scripts.bench.local_stack import LocalStack
from scripts.lib.environment import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "notebooks"
LOCK = ROOT / "requirements" / "notebooks.lock"
RUNNER = Path(__file__).with_name("notebook_run.py")
_KEPT = ("PATH", "LANG", "LC_ALL", "XDG_STATE_HOME", "XDG_CACHE_HOME")


def say(line: str) -> None:
    """Print a line of progress on stderr."""
    print(line, file=sys.stderr, flush=True)


def sources() -> list[Path]:
    """Return the sources of the notebooks."""
    return sorted(FOLDER.glob("*.py"))


def kernel_python() -> Path:
    """Return the Python that executes notebooks; building it needs the network once."""
    return ensure_locked("notebooks", LOCK, "about a minute, 290 MB", say)


def execute(source: Path, port: int, target: Path, page: Path | None = None) -> None:
    """Execute one against the local SageMaker at ``port``; write the notebook, and a page if one is named.

    Raises:
        subprocess.CalledProcessError: a cell failed; its error is in ``stderr``.
    """
    with tempfile.TemporaryDirectory(prefix="notebook-") as folder:
        home = Path(folder)
        (home / "work").mkdir()
        command = [kernel_python(), RUNNER, source, target, *([page] if page else [])]
        subprocess.run(
            [str(each) for each in command],
            cwd=home / "work",
            env=environment(home, port),
            capture_output=True,
            text=True,
            check=True,
        )


def environment(home: Path, port: int) -> dict[str, str]:
    """Return a kernel's environment, without the user's account, settings or other kernels."""
    # The version of the package is read from its metadata, and the checkout has none beside the code.
    metadata = Path(str(distribution("peagle-sm").locate_file(""))).glob("peagle_sm-*.dist-info")
    (home / "metadata").mkdir()
    for each in metadata:
        (home / "metadata" / each.name).symlink_to(each, target_is_directory=True)
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return {
        **kept,
        "HOME": str(home),
        "XDG_CACHE_HOME": cache,
        "XDG_STATE_HOME": state,
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "jupyter"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        "PYTHONPATH": os.pathsep.join([*map(str, PACKAGES), str(home / "metadata")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PEAGLE_SM_LOCAL_PORT": str(port),
        "AWS_EC2_METADATA_DISABLED": "true",
        "LANGSMITH_TRACING": "false",
    }


def main(arguments: list[str] | None = None) -> int:
    """Execute all or the named notebooks; exit status 1 if one failed."""
    parser = argparse.ArgumentParser(prog="scripts/notebooks", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="Without .py.  [default: all]", metavar="NAME")
    parser.add_argument(
        "--html", type=Path, metavar="FOLDER", help="Write each as a page too, to be looked at."
    )
    chosen = parser.parse_args(arguments)
    by_name = {source.stem: source for source in sources()}
    unknown = [name for name in chosen.names if name not in by_name]
    if unknown:
        parser.error(f"{', '.join(unknown)}: allowed: {', '.join(by_name)}")
    if chosen.html:
        chosen.html.mkdir(parents=True, exist_ok=True)
    failed = []
    kernel_python()
    with LocalStack(say) as stack:
        port = int(str(stack.session.local_url).rpartition(":")[2])
        for name in chosen.names or by_name:
            began = time.monotonic()
            try:
                page = chosen.html / f"{name}.html" if chosen.html else None
                execute(by_name[name], port, FOLDER / f"{name}.ipynb", page)
            except subprocess.CalledProcessError as error:
                failed.append(name)
                say(error.stderr[-6000:])
            say(f"{name}: {'failed' if name in failed else 'written'}, {time.monotonic() - began:.0f} s")
    return 1 if failed or stack.left else 0


if __name__ == "__main__":
    sys.exit(main())
