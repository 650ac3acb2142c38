"""A pinned uv in the cache, which installs lock files with pip's settings.

Each function says False or None where uv cannot do it, and its caller then uses pip. Standard library only:
``scripts/lib/environment.py`` runs this before anything is installed.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import os
import re
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sagemaker_local.paths import cache_dir


def requirements(lock: Path) -> list[str]:
    """Return a lock file's requirements, each on one line with its hashes, without the comments."""
    text = re.sub(r"\\\n", " ", lock.read_text(encoding="utf-8"))
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def version_in(lock: Path, name: str) -> str | None:
    """Return the version that a lock file pins for a package, None where it does not name it."""
    for requirement in requirements(lock):
        if requirement.startswith(f"{name}=="):
            return requirement.removeprefix(f"{name}==").split()[0]
    return None


Progress = Callable[[str], None]
LOCK = Path(__file__).with_name("installer.lock")
# Settings of the caller's own Python that would lead another environment's pip astray.
FOREIGN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")
_STEPS = {"Resolved": "found", "Prepared": "fetched", "Installed": "installed"}
# Never imported by what this project runs, and most of the Python of their environments.
_NOT_COMPILED = r"(aws_cdk|numba|transformers/models|(.*/)?tests)/"


@dataclass(frozen=True)
class Settings:
    """pip's settings (files and variables), translated for uv."""

    options: tuple[str, ...]
    environ: Mapping[str, str]
    constrained: bool


def install(
    python: Path, lock: Path, progress: Progress, *, cache: Path | None = None, without: tuple[str, ...] = ()
) -> bool:
    """Install the packages of ``lock`` with uv, by their hashes; False where uv cannot.

    Args:
        python: the Python of the environment.
        lock: a file of exact pins, each with its hashes.
        progress: gets a sentence per step, and one that says why uv could not do it.
        cache: this program's cache directory, by default the user's.
        without: the names of packages that are left out.
    """
    wanted = [line for line in requirements(lock) if re.split(r"[=\s]", line)[0] not in without]
    if not all("--hash=" in line or line.startswith("-") for line in wanted):
        return False
    with tempfile.TemporaryDirectory(prefix="peagle-lock-") as scratch:
        chosen = Path(scratch) / lock.name
        chosen.write_text("".join(f"{line}\n" for line in wanted), encoding="utf-8")
        return uv_install(python, ["--no-deps", "--requirement", str(chosen)], progress, cache)


def install_editable(
    python: Path, projects: Sequence[Path], progress: Progress, *, cache: Path | None = None
) -> bool:
    """Install projects, editable, with the build backend that the environment already has."""
    editable = [part for project in projects for part in ("--editable", str(project))]
    return uv_install(python, ["--no-deps", "--no-build-isolation", *editable], progress, cache)


def uv_install(
    python: Path,
    arguments: list[str],
    progress: Progress,
    cache: Path | None = None,
    pip_of: Path | None = None,
) -> bool:
    """Run ``uv pip install`` on an environment, with the settings of pip; False where that fails.

    ``pip_of`` is the Python whose pip is asked, by default that of the environment.
    """
    cache, pip_of = cache or cache_dir(), pip_of or python
    uv = ensure_uv(pip_of, cache, progress)
    if uv is None:
        return False
    listed = run([str(pip_of), "-m", "pip", "config", "list"], environ({}))
    pip_settings = settings(listed.stdout, os.environ)
    command = [str(uv), "pip", "install", "--python", str(python), "--color", "never"]
    if not os.environ.get("UV_CACHE_DIR"):
        command += ["--cache-dir", str(cache / "uv" / "cache")]
    # Where it requires hashes, uv refuses a constraint that is no pin; it verifies the given ones anyway.
    command += ["--require-hashes"] if "--requirement" in arguments and not pip_settings.constrained else []
    command += [*pip_settings.options, *arguments]
    # What was fetched once needs no network; a project's own settings for uv in this folder are not ours.
    for more in (["--offline"], []):
        done = run([*command, *more], environ(pip_settings.environ), cwd=cache, on_line=_told(progress))
        if not done.returncode:
            return True
    progress(f"uv could not install ({_cause(done)}): pip installs instead")
    return False


def compile_packages(python: Path) -> None:
    """Compile the packages of an environment on all cores, but not what is never imported."""
    home = {"base": str(python.parent.parent)}
    packages = sysconfig.get_path("purelib", "venv", home)
    skipped = re.escape(packages) + "/" + _NOT_COMPILED
    # Some packages carry templates that are no Python: a status that tells of them is no failure.
    command = [str(python), "-m", "compileall", "-qq", "-j", "0", "-x", skipped, packages]
    subprocess.run(command, env=environ({}), stdin=subprocess.DEVNULL, check=False)


def ensure_uv(python: Path, cache: Path, progress: Progress) -> Path | None:
    """Return the path of the pinned uv, fetched with ``python``'s pip the first time; None if it cannot."""
    home = cache / "uv" / key()
    if not (home / "bin" / "uv").is_file():
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent, prefix=".part-") as part:
            pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-input"]
            pip += ["--no-deps", "--no-compile", "--require-hashes", "-r", str(LOCK)]
            done = run([*pip, "--target", f"{part}/uv"], environ({}))
            if done.returncode:
                progress(f"uv cannot be fetched ({_cause(done)}): pip installs instead")
                return None
            # A rename is all or nothing; it fails where another process was first.
            with contextlib.suppress(OSError):
                Path(part, "uv").rename(home)
    return home / "bin" / "uv"


def key() -> str:
    """Return the hash that names the folder of uv in the cache: of its lock and the platform."""
    return hashlib.sha256(LOCK.read_bytes() + sysconfig.get_platform().encode()).hexdigest()[:16]


def settings(listing: str, environ: Mapping[str, str]) -> Settings:
    """Translate what ``pip config list`` prints, and the variables that pip's own HTTP library reads."""
    pip_settings: dict[str, str] = {}
    for section in ("global.", "install.", ":env:."):
        for line in listing.splitlines():
            if line.startswith(section) and "=" in line:
                name, value = line.removeprefix(section).split("=", 1)
                pip_settings[name] = _plain(value)
    options: list[str] = []
    for name, option in (
        ("index-url", "--default-index"),
        ("extra-index-url", "--index"),
        ("find-links", "--find-links"),
        ("trusted-host", "--allow-insecure-host"),
        ("constraint", "--constraints"),
    ):
        for value in pip_settings.get(name, "").split():
            options += [option, _absolute(value)]
    for name in ("only-binary", "no-binary"):
        for value in pip_settings.get(name, "").replace(",", " ").split():
            options += [f"--{name}", value]
    if pip_settings.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        options.append("--no-index")
    if pip_settings.get("keyring-provider") == "subprocess":
        options += ["--keyring-provider", "subprocess"]
    bundle = pip_settings.get("cert") or environ.get("REQUESTS_CA_BUNDLE") or environ.get("CURL_CA_BUNDLE")
    given = {
        "SSL_CERT_DIR" if bundle and Path(bundle).is_dir() else "SSL_CERT_FILE": bundle,
        "SSL_CLIENT_CERT": pip_settings.get("client-cert"),
        "ALL_PROXY": pip_settings.get("proxy"),
        "HTTP_PROXY": pip_settings.get("proxy"),
        "HTTPS_PROXY": pip_settings.get("proxy"),
        "UV_HTTP_TIMEOUT": pip_settings.get("timeout") or pip_settings.get("default-timeout"),
        "UV_HTTP_RETRIES": pip_settings.get("retries"),
    }
    return Settings(
        # pip takes a version from whichever index has it; the hashes say which files are right.
        (*options, "--index-strategy", "unsafe-best-match"),
        {name: value for name, value in given.items() if value},
        "--constraints" in options,
    )


def _told(progress: Progress) -> Progress:
    """Return a reader of uv's lines, such as ``Prepared 147 packages in 9.10s``."""

    def read(line: str) -> None:
        first, _, rest = line.partition(" ")
        if first in _STEPS:
            progress(f"{_STEPS[first]} {rest}")

    return read


def run(
    command: list[str],
    variables: Mapping[str, str],
    cwd: Path | None = None,
    on_line: Progress = lambda line: None,
) -> subprocess.CompletedProcess[str]:
    """Run a program; report its lines as they arrive, and return them all in ``stdout``."""
    lines = []
    with subprocess.Popen(
        command,
        env=variables,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            for line in process.stdout or ():
                lines.append(line)
                on_line(line.strip())
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, "".join(lines))


def environ(more: Mapping[str, str]) -> dict[str, str]:
    """Return this process's variables without those of another Python, and ``more``."""
    return {name: value for name, value in os.environ.items() if name not in FOREIGN} | dict(more)


def _cause(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    causes = [line for line in lines if line.lower().startswith(("error", "cause"))] or lines[-1:]
    return "; ".join(causes)[:300] or f"exit status {done.returncode}"


def _plain(value: str) -> str:
    """Return a value that ``pip config list`` wrote as Python would."""
    try:
        return str(ast.literal_eval(value))
    except (SyntaxError, ValueError):
        return value


def _absolute(value: str) -> str:
    """Return a path made absolute, anything else unchanged."""
    return str(Path(value).absolute()) if "://" not in value and Path(value).exists() else value
