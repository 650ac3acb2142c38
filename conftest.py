"""What every test stands on: no account, no network, no state of the user, the fast tests first."""

from __future__ import annotations

import concurrent.futures.thread
import functools
import gc
import itertools
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from botocore.loaders import JSONFileLoader
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

# One namespace over the folders `tests` of the root and of the packages; pytest would make one of the first.
import tests  # noqa: F401

if TYPE_CHECKING:
    from peagle_sm.aws.session.session import Session
    from tests.local.serving import Server

# Two shared cores make single examples slow at random, so a deadline would only find the machine's load.
# CI repeats the same examples: a red run there must be about the change, not about the draw.
settings.register_profile(
    "change",
    deadline=None,
    max_examples=25,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=bool(os.environ.get("CI")),
)
settings.register_profile("campaign", parent=settings.get_profile("change"), max_examples=100)

# Each botocore session would parse megabytes of service models again: a quarter of the tests' CPU time.
setattr(JSONFileLoader, "load_file", staticmethod(functools.cache(JSONFileLoader().load_file)))  # noqa: B010

_buckets = itertools.count(1)
Marked = TypeVar("Marked", bound=pytest.Item)
_LOOPBACK = ("localhost", "::1", "0.0.0.0", "::", "")


def _is_local(host: object) -> bool:
    if isinstance(host, bytes):
        host = host.decode()
    return host is None or (isinstance(host, str) and (host in _LOOPBACK or host.startswith("127.")))


def _refuse_the_network(event: str, args: tuple[Any, ...]) -> None:
    """The suite runs offline: a test that would leave this machine fails where it tries to."""
    if event == "socket.getaddrinfo":
        host = args[0]
    elif event == "socket.connect" and isinstance(args[1], tuple):
        host = args[1][0]
    else:
        return
    if not _is_local(host):
        raise OSError(f"tests stay on this machine, and this one tried to reach {host!r}")


def pytest_configure(config: pytest.Config) -> None:
    """Cuts the tests, and the processes that they start, off from the user's account and state."""
    settings.load_profile("campaign" if config.getoption("--all") else "change")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell's background job ignores Ctrl-C, and so would every process that a test interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # until the tests are collected: next to nothing of what is made until then is garbage
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
    nowhere = tempfile.mkdtemp(prefix="peagle-sm-tests-")
    os.environ["AWS_CONFIG_FILE"] = f"{nowhere}/aws-config"
    os.environ["AWS_SHARED_CREDENTIALS_FILE"] = f"{nowhere}/aws-credentials"
    # The state only. The cache stays the user's: the engine's environment in it takes minutes to build.
    os.environ["XDG_STATE_HOME"] = f"{nowhere}/state"
    os.environ["PEAGLE_SM_PRICES"] = f"{nowhere}/prices.json"
    sys.addaudithook(_refuse_the_network)


def pytest_unconfigure() -> None:
    """Removes the state that the tests wrote, and ends even when a test left a thread that never would."""
    shutil.rmtree(Path(os.environ["XDG_STATE_HOME"]).parent, ignore_errors=True)
    left = _threads_left(wait_s=5)
    for thread in left:
        frame = sys._current_frames().get(thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame else ""
        print(f"a test left this thread behind: {thread.name}\n{stack}", file=sys.stderr)
    if left:
        # The interpreter would wait for it forever, and a run that hangs tells nobody why.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)


def _threads_left(wait_s: float) -> list[threading.Thread]:
    """The threads that keep the interpreter from ending, after some patience; pools end by themselves."""
    deadline = time.monotonic() + wait_s
    others = [t for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
    pooled = concurrent.futures.thread._threads_queues
    for thread in others:
        if thread not in pooled:
            thread.join(max(0.0, deadline - time.monotonic()))
    return [thread for thread in others if thread.is_alive() and thread not in pooled]


def tier(items: Iterable[Marked], *, everything: bool) -> tuple[list[Marked], list[Marked]]:
    """What runs, and what waits for `--all`: the campaigns."""
    kept: list[Marked] = []
    left: list[Marked] = []
    for item in items:
        waits = not everything and item.get_closest_marker("campaign") is not None
        (left if waits else kept).append(item)
    return kept, left


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--all` adds the campaigns to what guards a change."""
    parser.addoption("--all", action="store_true", help="run the tests marked `campaign`, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fast tests first, then slow ones, then those with a real engine: a plain mistake shows at once.

    Where processes share the tests, it is the other way round: a file goes to one of them as a whole, and a
    long one at the end would leave the others without work.
    """
    kept, left = tier(items, everything=config.getoption("--all"))
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept
    shared = "PYTEST_XDIST_WORKER" in os.environ
    items.sort(
        key=lambda item: 2 * bool(item.get_closest_marker("engine")) + bool(item.get_closest_marker("slow")),
        reverse=shared,
    )


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """Give each process one file after the other, and the files of a share to one process."""
    return _Scheduling(config, log)


#: Shares of the tests by the beginnings of their files: the first that fits. Tests of the stacks share their
#: templates. The files of e2e start up to four engines each, so two processes take them, and no third one:
#: in two shares that take about as long.
_SHARES = {
    "tests/stacks/": "stacks",
    "tests/e2e/test_acceptance_by_slice": "engines of heads",
    "tests/e2e/test_learn_": "engines of heads",
    "tests/e2e/test_packs": "engines of heads",
    "tests/e2e/": "engines",
}
#: Files of e2e without an engine: any process may take them.
APART = {
    "tests/e2e/test_aws_cli.py",
    "tests/e2e/test_cdk_cycle.py",
    "tests/e2e/test_first_hour.py",
    "tests/e2e/test_openai_document.py",
    "tests/e2e/test_production.py",
    "tests/e2e/test_smollm2_first_run.py",
}


class _Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        shares = (share for start, share in _SHARES.items() if file.startswith(start))
        return file if file in APART else next(shares, file)


def pytest_collection_finish() -> None:
    """Leave the tests and what they import, a million objects, out of every later garbage collection."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The one local server of a run, with scripted engines: tests use names of their own."""
    from tests.local.serving import running_server

    yield from running_server(tmp_path_factory.mktemp("weights"))


@pytest.fixture(scope="session")
def local(server: Server) -> Session:
    """A session of peagle-sm with the local server."""
    from tests.local.serving import local_session

    return local_session(server)


@pytest.fixture
def bucket(server: Server) -> str:
    """A new, empty bucket of the local S3."""
    name = f"bucket-{next(_buckets)}"
    server.client("s3").create_bucket(Bucket=name)
    return name


@pytest.fixture
def in_empty_folder(tmp_path: Path) -> Iterator[Path]:
    """Runs the test with an empty folder as its working directory."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)
