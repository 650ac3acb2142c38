"""The wheel works anywhere: built, installed in an empty environment, used in an empty folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from sagemaker_local.engine import installer
from scripts.lib import environment
from scripts.lib.locks import read_pins
from tests.rules.files import project_files

ENDPOINT = "from-the-wheel"
PAGES = ("explanation", "how-to", "reference", "tutorials")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder outside the checkout. Not tmp_path: an environment is too large to keep after a failure."""
    path = Path(tempfile.mkdtemp(prefix="peagle-sm-wheel-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def wheel(folder: Path, root: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    (built,) = (folder / "dist").glob("*.whl")
    return built


def pip_for(venv: Path) -> list[str]:
    """This environment's pip at work on another one: to install pip there, too, would only take time."""
    return [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python")]


@dataclass(frozen=True)
class Installed:
    """The wheel in an environment of its own, and how to run its command."""

    venv: Path
    work: Path
    environ: dict[str, str]

    def run(self, *arguments: str, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [self.venv / "bin" / "peagle-sm", *arguments],
            cwd=self.work,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--format", "json").stdout)


@pytest.fixture(scope="module")
def installed(folder: Path, wheel: Path) -> Iterator[Installed]:
    """The wheel with the extra `local`, its dependencies in the versions of the lock."""
    venv, work = folder / "venv", folder / "work"
    work.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    pins = folder / "pins.txt"
    pins.write_text("".join(f"{pin}\n" for pin in read_pins(environment.LOCK.read_text())))
    wanted = ["--constraint", str(pins), f"peagle-sm[local] @ {wheel.as_uri()}"]
    if not installer.uv_install(venv / "bin" / "python", wanted, print, pip_of=Path(sys.executable)):
        # Python compiles what the test imports; the rest would be waited for in vain.
        subprocess.run([*pip_for(venv), "install", "-qq", "--no-compile", *wanted], check=True)
    hidden = {"PYTHONPATH", "VIRTUAL_ENV"}
    environ = {name: value for name, value in os.environ.items() if name not in hidden}
    environ |= {"XDG_STATE_HOME": str(folder / "state"), "PATH": f"{venv / 'bin'}:/usr/bin:/bin"}
    there = Installed(venv, work, environ)
    yield there
    subprocess.run([venv / "bin" / "peagle-sm", "local", "down"], env=environ, cwd=work, check=False)


@pytest.mark.slow
def test_the_wheel_holds_the_package_the_container_the_guards_code_and_nothing_else(wheel: Path) -> None:
    expected = set()
    for path in project_files():
        if path.parts[:2] in (("toolkit", "peagle_sm"), ("toolkit", "sagemaker_local")):
            expected.add(str(Path(*path.parts[1:])))
        elif path.parts[0] == "container":
            expected.add(str(Path("sagemaker_local", "_container", *path.parts[1:])))
        elif path.parts[0] == "docs" and path.suffix == ".md" and path.parts[1] in PAGES:
            expected.add(str(Path("peagle_sm", "_docs", *path.parts[1:])))
        elif path.parts[0] == "stacks" or str(path) in ("app.py", "package.json", "package-lock.json"):
            expected.add(str(Path("peagle_sm", "_cdk_app", *path.parts)))
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    assert held == expected
    assert modes["sagemaker_local/_container/serve"] & 0o111


@pytest.mark.slow
def test_the_wheel_installs_with_the_versions_of_the_lock(installed: Installed) -> None:
    done = subprocess.run([*pip_for(installed.venv), "check"], check=False)
    assert done.returncode == 0
    assert installed.run("--version").stdout.startswith("peagle-sm ")
    assert installed.run("help", "streams").stdout.startswith("# ")
    written = installed.json("cdk", "init", "infra")["written"]
    assert "infra/stacks" in written
    assert (
        installed.work / "infra" / "stacks" / "guard" / "runtime" / "peagle_guard" / "sweeper.py"
    ).is_file()
    assert (installed.work / "infra" / "container" / "serve").stat().st_mode & 0o111


@pytest.mark.slow
@pytest.mark.engine
def test_an_endpoint_lives_and_goes_in_an_empty_folder(installed: Installed) -> None:
    server = installed.json("local", "up", "--detach")
    processes = [psutil.Process(server["pid"])]
    installed.run("init", "tiny-code", "--name", ENDPOINT)
    installed.run("deploy", "--local", "--unguarded", "--yes")
    processes += psutil.Process(server["pid"]).children(recursive=True)
    answer = installed.run("invoke", ENDPOINT, "-p", "def add(a, b):", "--max-tokens", "16", "--local")
    assert answer.stdout.strip()
    installed.run("delete", ENDPOINT, "--yes", "--local")
    assert installed.json("list", "--local") == []
    installed.run("local", "down")
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive
