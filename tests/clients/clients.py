"""The clients of docs/how-to/clients.md: how each is run, and in which environment."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from sagemaker_local.engine.locked_env import ensure_locked
from scripts.lib.locks import read_pins

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("programs")
#: What an environment costs to build.
PRICES = {
    "litellm": "a quarter of a minute and 220 MB",
    "strands": "ten seconds and 95 MB",
    "langchain-aws": "ten seconds and 110 MB",
    "langchain": "about a minute and 135 MB",
    "sagemaker-sdk": "half a minute and 310 MB",
}


@dataclass(frozen=True)
class Client:
    """One row: a program of `programs/` in an environment.

    ``packages`` are those whose versions the page tells; ``lock`` is in `requirements/`, none means the
    toolkit's own environment; ``way`` is how it comes to the endpoint: SageMaker's stream (``stream``), the
    OpenAI route (``openai``), or the proxy of `peagle-sm serve` (``serve``). ``instead`` asks the program for
    another of its clients.
    """

    key: str
    label: str
    program: str
    packages: tuple[str, ...]
    lock: str | None = None
    way: str = "stream"
    asynchronous: bool = False
    instead: str = ""

    @property
    def operation(self) -> str:
        """The call that a fault must apply to."""
        return "openai" if self.way == "openai" else "stream"

    def python(self, progress: Callable[[str], None]) -> Path:
        """The Python of its environment, which is built first where that is needed."""
        if self.lock is None:
            return Path(sys.executable)
        return ensure_locked(self.lock, _file(self.lock), PRICES[self.lock], progress)

    def versions(self) -> dict[str, str]:
        """The version of each of its packages, without building its environment."""
        if self.lock is None:
            return {name: version(name) for name in self.packages}
        pins = {pin.name: pin.version for pin in read_pins(_file(self.lock).read_text(encoding="utf-8"))}
        return {name: pins[name] for name in self.packages}


def _file(lock: str) -> Path:
    return ROOT / "requirements" / f"{lock}.lock"


CLIENTS = (
    Client("litellm", "litellm", "litellm_chat", ("litellm",), "litellm"),
    Client("litellm-async", "litellm, async", "litellm_chat", ("litellm",), "litellm", asynchronous=True),
    Client("strands", "strands-agents", "strands_model", ("strands-agents",), "strands"),
    Client(
        "sagemaker-core",
        "sagemaker-core `LineIterator`",
        "sagemaker_core",
        ("sagemaker-core",),
        "sagemaker-sdk",
    ),
    Client(
        "langchain-llm",
        "langchain-aws `SagemakerEndpoint`",
        "langchain_llm",
        ("langchain-aws",),
        "langchain-aws",
    ),
    Client(
        "langchain-chat",
        "langchain-aws `ChatSagemakerEndpoint`",
        "langchain_chat",
        ("langchain-aws",),
        "langchain-aws",
    ),
    Client("boto3", "boto3, a loop of the samples", "boto3_loop", ("boto3",)),
    Client("openai", "OpenAI SDK, OpenAI route", "openai_sdk", ("openai",), way="openai"),
    Client("serve", "OpenAI SDK, `peagle-sm serve`", "openai_sdk", ("openai", "peagle-sm"), way="serve"),
    Client("ours", "**peagle_sm** `stream`", "ours", ("peagle-sm",)),
    Client("ours-async", "**peagle_sm** `astream`", "ours", ("peagle-sm",), asynchronous=True),
)

#: What docs/how-to/clients.md says to use instead, at `peagle-sm serve`.
BEHIND_SERVE = (
    Client(
        "litellm-serve",
        "litellm `openai/`",
        "litellm_chat",
        ("litellm",),
        "litellm",
        "serve",
        instead="openai",
    ),
    Client(
        "litellm-async-serve",
        "litellm `openai/`, async",
        "litellm_chat",
        ("litellm",),
        "litellm",
        "serve",
        asynchronous=True,
        instead="openai",
    ),
    Client(
        "langchain-serve",
        "langchain-openai `ChatOpenAI`",
        "langchain_chat_openai",
        ("langchain-openai",),
        "langchain",
        "serve",
    ),
    Client(
        "strands-serve",
        "strands-agents `OpenAIModel`",
        "strands_model",
        ("strands-agents",),
        "strands",
        "serve",
        instead="openai",
    ),
)
