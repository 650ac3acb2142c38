"""A training job's folders as SageMaker fills them, with the small family that ships."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sagemaker_local.engine.trainer_env import train_command, train_environ
from sagemaker_local.paths import weights_dir

VOCAB = 2048
Document = dict[str, Any]


def document(number: int, length: int = 40, prompt: int = 10) -> Document:
    """Tokens that repeat, so that there is something to learn."""
    ids = [4 + (number * 7 + place * place) % (VOCAB - 4) for place in range(length)]
    return {
        "input_ids": ids,
        "loss_mask": [0] * prompt + [1] * (length - prompt),
        "conversation": str(number),
    }


def lines(documents: Sequence[Any]) -> str:
    return "".join(json.dumps(each) + "\n" for each in documents)


@dataclass
class Job:
    """One job's ``/opt/ml``; `run` starts the program on it."""

    root: Path
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    resources: dict[str, Any] | None = None
    more: dict[str, str] = field(default_factory=dict)

    @property
    def data(self) -> Path:
        return self.root / "input" / "data"

    @property
    def failure(self) -> str:
        file = self.root / "output" / "failure"
        return file.read_text() if file.exists() else ""

    def write(self, channel: str, text: str, name: str = "part.tokens.jsonl") -> None:
        folder = self.data / channel
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    def prepare(self) -> None:
        config = self.root / "input" / "config"
        config.mkdir(parents=True, exist_ok=True)
        given = {name: str(value) for name, value in self.hyperparameters.items()}
        (config / "hyperparameters.json").write_text(json.dumps(given))
        if self.resources is not None:
            (config / "resourceconfig.json").write_text(json.dumps(self.resources))

    def command(self, python: Path) -> list[str]:
        self.prepare()
        return train_command(python)

    def environ(self) -> dict[str, str]:
        given = {"PATH": os.environ["PATH"], "HOME": str(self.root), "OMP_NUM_THREADS": "1", **self.more}
        return train_environ(given, self.root)

    def run(
        self, python: Path = Path(sys.executable), timeout: float = 900
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(python),
            env=self.environ(),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def job(root: Path, *, head: bool = True, count: int = 24, **hyperparameters: Any) -> Job:
    """A job that would run: the small target, its head, and some documents."""
    created = Job(root, {"sequence_length": 64, **hyperparameters})
    for channel, name in (("target", "target"), *([("head", "p-eagle")] if head else [])):
        shutil.copytree(weights_dir() / name, created.data / channel)
    created.write("training", lines([document(number) for number in range(count)]))
    created.write("validation", lines([document(number) for number in range(1000, 1004)]))
    return created


def records(output: str, kind: str = "step") -> list[dict[str, str]]:
    """The program's lines of one kind, by name."""
    rows = []
    for line in output.splitlines():
        prefix, _, rest = line.partition(" ")
        if prefix != "peagle-train":
            continue
        named = rest.split()[0].partition("=")
        if (kind == "step" and named[0] == "step") or (named[0] == kind and not named[1]):
            rows.append(dict(word.split("=", 1) for word in rest.split() if "=" in word))
    return rows
