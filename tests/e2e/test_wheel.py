"""The wheels work anywhere: built, installed in empty environments, used in an empty folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
PACKAGES = ("peagle-sm", "peagle-bench", "peagle-learn", "sagemaker-local")
#: Of one environment with everything.
TOO_MUCH = {"aiohttp", "aws-cdk-lib", "jinja2", "moto", "numpy", "psutil"}

Wheels = dict[str, Path]


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder outside the checkout. Not tmp_path: an environment is too large to keep after a failure."""
    path = Path(tempfile.mkdtemp(prefix="peagle-sm-wheel-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def wheels(folder: Path, root: Path) -> Wheels:
    built = {}
    for package in PACKAGES:
        out = folder / "dist" / package
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
        subprocess.run(command, cwd=root / "toolkit" / package, check=True, capture_output=True)
        (built[package],) = out.glob("*.whl")
    return built


def pip_for(venv: Path) -> list[str]:
    """This environment's pip at work on another one: to install pip there, too, would only take time."""
    return [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python")]


@dataclass(frozen=True)
class Installed:
    """Wheels in an environment of their own, and how to run its command."""

    venv: Path
    work: Path
    environ: dict[str, str]

    def attempt(self, *arguments: str, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.venv / "bin" / "peagle-sm", *arguments],
            cwd=self.work,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = self.attempt(*arguments)
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"
        return done

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--format", "json").stdout)

    def python(self, program: str) -> str:
        command = [str(self.venv / "bin" / "python"), "-c", program]
        done = subprocess.run(
            command, cwd=self.work, env=self.environ, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return str(done.stdout)

    def distributions(self) -> set[str]:
        names = "from importlib.metadata import distributions as d; print(*{x.name.lower() for x in d()})"
        return set(self.python(names).split())


def install(folder: Path, name: str, wheels: Wheels, *packages: str) -> Installed:
    """Install packages' wheels in a new environment, their dependencies in the versions of the lock."""
    venv, work = folder / name / "venv", folder / name / "work"
    work.mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    pins = folder / "pins.txt"
    pins.write_text("".join(f"{pin}\n" for pin in read_pins(environment.LOCK.read_text())))
    wanted = ["--constraint", str(pins), *(f"{each} @ {wheels[each].as_uri()}" for each in packages)]
    if not installer.uv_install(venv / "bin" / "python", wanted, print, pip_of=Path(sys.executable)):
        # Python compiles what the test imports; the rest would be waited for in vain.
        subprocess.run([*pip_for(venv), "install", "-qq", "--no-compile", *wanted], check=True)
    hidden = {"PYTHONPATH", "VIRTUAL_ENV"}
    environ = {key: value for key, value in os.environ.items() if key not in hidden}
    environ |= {"XDG_STATE_HOME": str(folder / name / "state"), "PATH": f"{venv / 'bin'}:/usr/bin:/bin"}
    return Installed(venv, work, environ)


@pytest.fixture(scope="module")
def alone(folder: Path, wheels: Wheels) -> Installed:
    """peagle-sm and nothing else of this project."""
    return install(folder, "alone", wheels, "peagle-sm")


@pytest.fixture(scope="module")
def everything(folder: Path, wheels: Wheels) -> Iterator[Installed]:
    """All four packages."""
    installed = install(folder, "everything", wheels, *PACKAGES)
    yield installed
    installed.attempt("local", "down")


@pytest.mark.slow
def test_each_wheel_holds_its_package_and_what_it_reads_of_the_checkout(wheels: Wheels) -> None:
    expected: dict[str, set[str]] = {package: set() for package in PACKAGES}
    for path in project_files():
        if path.parts[0] == "toolkit" and path.parts[2] == path.parts[1].replace("-", "_"):
            expected[path.parts[1]].add(str(Path(*path.parts[2:])))
        elif path.parts[0] == "docs" and path.suffix == ".md" and path.parts[1] in PAGES:
            expected["peagle-sm"].add(str(Path("peagle_sm", "_docs", *path.parts[1:])))
        elif path.parts[0] in ("app.py", "package.json", "package-lock.json", "stacks", "container"):
            expected["peagle-sm"].add(str(Path("peagle_sm", "_cdk_app", *path.parts)))
        if path.parts[0] == "container":
            expected["sagemaker-local"].add(str(Path("sagemaker_local", "_container", *path.parts[1:])))
    for package, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as archive:
            members = {name for name in archive.namelist() if ".dist-info/" not in name}
            modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
            licences = {Path(name).name for name in archive.namelist() if "/licenses/" in name}
        assert members == expected[package]
        assert licences == {"LICENSE", "NOTICE"}
        executable = {name for name in members if name.endswith("/serve")}
        assert all(modes[name] & 0o111 for name in executable)


@pytest.mark.slow
def test_peagle_sm_alone_plans_and_names_the_packages_that_other_commands_need(alone: Installed) -> None:
    assert subprocess.run([*pip_for(alone.venv), "check"], check=False).returncode == 0
    assert not TOO_MUCH & alone.distributions()
    assert alone.run("--version").stdout.startswith("peagle-sm ")
    assert alone.run("help", "streams").stdout.startswith("# ")
    alone.run("init", "gpt-oss-20b")
    assert alone.json("plan")["name"] == "gpt-oss-20b-p-eagle"
    for arguments, path in (
        (["bench", "demo"], "./toolkit/peagle-bench"),
        (["learn", "plan"], "./toolkit/peagle-learn"),
        (["list", "--local"], "./toolkit/sagemaker-local"),
        (["local", "up"], "./toolkit/sagemaker-local"),
        (["heads", "check", "tiny-code"], "./toolkit/sagemaker-local"),
    ):
        refused = alone.attempt(*arguments)
        assert refused.returncode not in (0, 1)
        assert path in refused.stderr
        assert "Traceback" not in refused.stderr
    program = """
import peagle_sm
try:
    peagle_sm.make_session(local=True)
except peagle_sm.EngineError as error:
    print(error.next_step)
"""
    assert "./toolkit/sagemaker-local" in alone.python(program)
    report = alone.attempt("doctor").stdout
    assert "sagemaker-local" in report
    assert "No module named" not in report


@pytest.mark.slow
def test_completion_offers_the_commands_that_are_installed(alone: Installed) -> None:
    typed = {"_PEAGLE_SM_COMPLETE": "bash_complete", "COMP_WORDS": "peagle-sm ", "COMP_CWORD": "1"}
    completed = replace(alone, environ=alone.environ | typed).run().stdout
    assert "plain,deploy" in completed
    assert "bench" not in completed


@pytest.mark.slow
def test_the_cdk_app_comes_from_the_wheel(alone: Installed) -> None:
    written = alone.json("cdk", "init", "infra")["written"]
    assert "infra/stacks" in written
    infra = alone.work / "infra"
    assert (infra / "stacks" / "guard" / "runtime" / "peagle_guard" / "sweeper.py").is_file()
    assert (infra / "container" / "serve").stat().st_mode & 0o111


@pytest.mark.slow
def test_sagemaker_local_answers_boto3_without_the_other_packages(folder: Path, wheels: Wheels) -> None:
    installed = install(folder, "server", wheels, "sagemaker-local")
    assert not {"peagle-sm", "peagle-bench", "peagle-learn"} & installed.distributions()
    program = """
import boto3
from sagemaker_local import lifecycle
server = lifecycle.up()
try:
    client = boto3.client("sagemaker", endpoint_url=server.endpoint_url, region_name=server.region,
                          aws_access_key_id="local", aws_secret_access_key="local")
    print(client.list_endpoints()["Endpoints"])
finally:
    lifecycle.down(server.port)
"""
    assert installed.python(program).splitlines()[-1] == "[]"


@pytest.mark.slow
@pytest.mark.engine
def test_an_endpoint_lives_and_goes_in_an_empty_folder(everything: Installed) -> None:
    assert subprocess.run([*pip_for(everything.venv), "check"], check=False).returncode == 0
    server = everything.json("local", "up", "--detach")
    processes = [psutil.Process(server["pid"])]
    everything.run("init", "tiny-code", "--name", ENDPOINT)
    everything.run("deploy", "--local", "--unguarded", "--yes")
    processes += psutil.Process(server["pid"]).children(recursive=True)
    request = ("-p", "def add(a, b):", "--max-tokens", "32", "--temperature", "0", "--local")
    answer = everything.json("invoke", ENDPOINT, *request)
    assert answer["text"]
    assert answer["summary"]["acceptance_length"] > 1, "the draft head does not work"
    measured = ["--prompts", "2", "--concurrency", "1", "--max-tokens", "8", "--out", "b.jsonl", "--local"]
    everything.run("bench", ENDPOINT, *measured)
    everything.run("report", "b.jsonl", "--html", "b.html")
    assert "<html" in (everything.work / "b.html").read_text()
    assert everything.run("learn", "--help").stdout
    everything.run("delete", ENDPOINT, "--yes", "--local")
    assert everything.json("list", "--local") == []
    everything.run("local", "down")
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive
