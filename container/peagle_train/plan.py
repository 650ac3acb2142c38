"""The checked plan of a job, made before anything large is loaded; it reports all mistakes of the user.

A plan goes pickled to the processes that train, so each trains with what was checked.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peagle_train import Mistake, checkpoint, heads, settings
from peagle_train.dataset import Channel, check_channel
from peagle_train.heads import Head
from peagle_train.rules import fit_faults
from peagle_train.settings import Settings
from peagle_train.target import Target, fingerprint, read_target

CHANNELS = ("target", "training", "validation", "head")


@dataclass(frozen=True)
class Folders:
    """SageMaker's folders in a training container."""

    root: Path

    @property
    def config(self) -> Path:
        """Where the service describes the job."""
        return self.root / "input" / "config"

    @property
    def data(self) -> Path:
        """The channels, a folder each."""
        return self.root / "input" / "data"

    @property
    def checkpoints(self) -> Path:
        """Copied to S3 while the job runs, and back when it starts again."""
        return self.root / "checkpoints"

    @property
    def model(self) -> Path:
        """Becomes ``model.tar.gz``."""
        return self.root / "model"

    @property
    def failure(self) -> Path:
        """Its first 1,024 characters become the job's FailureReason."""
        return self.root / "output" / "failure"

    def document(self, name: str) -> dict[str, Any]:
        """Return one of the service's JSON files; empty if it does not exist.

        Raises:
            Mistake: it is not a JSON object.
        """
        try:
            content = json.loads((self.config / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise Mistake(f"{name} cannot be read: {error}") from error
        if not isinstance(content, dict):
            raise Mistake(f"{name} is not a JSON object")
        return content


@dataclass(frozen=True)
class Plan:
    """A checked job; ``world`` is the number of processes that train it together."""

    folders: Folders
    work: Path
    settings: Settings
    target: Target
    target_hash: str
    head: Head | None
    head_hash: str | None
    training: Channel
    validation: Channel | None
    world: int

    @property
    def warm_start(self) -> Path:
        """Folder of the head to start from, in the library's layout."""
        return self.work / "warm-start"

    @property
    def documents_a_step(self) -> int:
        """Documents of one step, of all processes."""
        return self.settings.micro_batch_size * self.settings.grad_accumulation_steps * self.world

    @property
    def batches(self) -> int:
        """Micro batches of the whole run, of one process."""
        documents = self.training.documents * self.settings.epochs
        batches = math.ceil(documents / (self.settings.micro_batch_size * self.world))
        if self.settings.max_steps is None:
            return batches
        return min(batches, self.settings.max_steps * self.settings.grad_accumulation_steps)

    @property
    def steps(self) -> int:
        """Steps of the optimiser in the whole run."""
        return math.ceil(self.batches / self.settings.grad_accumulation_steps)

    @property
    def run(self) -> dict[str, Any]:
        """What must be the same in a checkpoint; intervals of logs and checkpoints may change."""
        free = ("checkpoint_every_steps", "log_every_steps")
        chosen = {name: value for name, value in settings.as_json(self.settings).items() if name not in free}
        return {
            **chosen,
            "processes": self.world,
            "training data": self.training.sha256,
            "target": self.target_hash,
            "head to start from": self.head_hash,
        }

    def epoch_at(self, step: int) -> int:
        """Return the epoch, from 1, that a step ends in."""
        return max(1, math.ceil(step * self.documents_a_step / self.training.documents))

    def ends_an_epoch(self, step: int) -> bool:
        """Return whether the last document of an epoch is in this step."""
        passed = [(each * self.documents_a_step) // self.training.documents for each in (step - 1, step)]
        return passed[0] != passed[1]


def make_plan(folders: Folders, work: Path, world: int) -> Plan:
    """Read and check all that the job was given.

    Raises:
        Mistake: the job cannot run; the message says why and what is allowed.
    """
    given = settings.read_settings(folders.document("hyperparameters.json"))
    _check_channels(folders)
    target = read_target(folders.data / "target")
    head = None
    if (folders.data / "head").is_dir():
        head = heads.read_head(heads.unpacked(folders.data / "head", work / "given-head"), target)
    chosen = settings.joined(given, head.as_settings if head else None)
    _check_fit(chosen, target, head, world)
    training, validation = (_channel(folders, name, target, chosen) for name in ("training", "validation"))
    assert training is not None
    plan = Plan(
        folders=folders,
        work=work,
        settings=chosen,
        target=target,
        target_hash=fingerprint(target.folder),
        head=head,
        head_hash=fingerprint(head.folder) if head else None,
        training=training,
        validation=validation,
        world=world,
    )
    saved = checkpoint.newest(folders.checkpoints)
    if saved is not None:
        checkpoint.check_same_run(saved, plan.run)
    return plan


def _check_channels(folders: Folders) -> None:
    named = set(folders.document("inputdataconfig.json"))
    lying = (
        {path.name for path in folders.data.iterdir() if path.is_dir()} if folders.data.is_dir() else set()
    )
    unknown = sorted((named | lying) - set(CHANNELS))
    if unknown:
        raise Mistake(f"unknown channel {', '.join(unknown)}; allowed: {', '.join(CHANNELS)}")
    for name in ("target", "training"):
        if name not in lying:
            raise Mistake(f"the channel {name} is missing; needed: target and training")


def _channel(folders: Folders, name: str, target: Target, chosen: Settings) -> Channel | None:
    folder = folders.data / name
    if not folder.is_dir():
        return None
    return check_channel(name, folder, vocab=target.vocab, sequence_length=chosen.sequence_length)


def _check_fit(chosen: Settings, target: Target, head: Head | None, world: int) -> None:
    for fault in fit_faults(settings.as_json(chosen), target, head, world):
        raise Mistake(fault)
