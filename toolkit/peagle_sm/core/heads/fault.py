"""What is wrong with a head, and what is known of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from peagle_sm.core.errors import PlanRefused
from peagle_sm.core.words import Severity

HeadFormat = Literal["eagle3", "speculators"]
Method = Literal["eagle3", "p-eagle"]


@dataclass(frozen=True)
class HeadFault:
    """One finding; an "error" keeps the head from being deployed. ``code`` is stable, for programs."""

    code: str
    severity: Severity
    message: str
    next_step: str = ""


class HeadRefused(PlanRefused):
    """A draft head must not be deployed; ``details["findings"]`` says why, one entry each."""


@dataclass(frozen=True)
class FileRecord:
    """One file of a head: its size in bytes, and its sha256 in hex (None where nobody told it)."""

    name: str
    size: int
    sha256: str | None = None


@dataclass(frozen=True)
class HeadReport:
    """What was found in a head's files; None where something is not known.

    ``trained_k`` is the number of tokens that it was trained to propose, ``dtype`` that of its weights.
    ``target_known`` says whether it was held against its target's config.
    """

    place: str
    format: HeadFormat | None = None
    method: Method | None = None
    architecture: str | None = None
    layers: int | None = None
    hidden_size: int | None = None
    target_hidden_size: int | None = None
    vocab_size: int | None = None
    draft_vocab_size: int | None = None
    mask_token_id: int | None = None
    aux_layer_ids: tuple[int, ...] = ()
    trained_k: int | None = None
    dtype: str | None = None
    parameters: int = 0
    licence: str | None = None
    revision: str | None = None
    target: str | None = None
    target_known: bool = False
    files: tuple[FileRecord, ...] = ()
    faults: tuple[HeadFault, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Whether nothing forbids to deploy it."""
        return not any(fault.severity == "error" for fault in self.faults)

    @property
    def size(self) -> int:
        """Bytes of all its files."""
        return sum(file.size for file in self.files)

    def raise_for_faults(self) -> None:
        """Refuse a head that must not be deployed.

        Raises:
            HeadRefused: with every error among its findings.
        """
        if not self.ok:
            raise refused(self.place, self.faults)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {**asdict(self), "ok": self.ok}


def refused(place: str, faults: Sequence[HeadFault], *, shown: bool = False) -> HeadRefused:
    """The error that names every fault of severity "error"; their codes alone when they were just shown."""
    errors = [fault for fault in faults if fault.severity == "error"]
    steps = dict.fromkeys(fault.next_step for fault in errors if fault.next_step)
    codes = ", ".join(dict.fromkeys(fault.code for fault in errors))
    told = f" {codes}" if shown else "".join(f"\n{fault.code}: {fault.message}" for fault in errors)
    return HeadRefused(
        f"the draft head at {place} must not be deployed:{told}",
        next_step=next(iter(steps), "take another head, or export it again"),
        details={"findings": [asdict(fault) for fault in faults]},
    )


@dataclass(frozen=True)
class HeadLook:
    """What a look at a spec's head found: at the manifest beside it, or without one at its files."""

    uri: str
    by: Literal["manifest", "files"]
    faults: tuple[HeadFault, ...]
