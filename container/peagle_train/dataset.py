"""Documents to train on: ``*.tokens.jsonl``, checked line by line, in an order that only the seed decides.

A line is ``{"input_ids": [...], "loss_mask": [...], "conversation": "..."}``. Documents stay on the disk; the
process keeps only the offset of each. The order is an endless sequence of shuffles, so one number is a
position in it: an interrupted run continues at the position of its checkpoint.
"""

import hashlib
import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peagle_train import Mistake
from peagle_train.rules import read_line

PATTERN = "*.tokens.jsonl"


@dataclass(frozen=True)
class Channel:
    """A checked channel; ``tokens`` and ``supervised`` count only tokens within the sequence length."""

    name: str
    folder: Path
    files: tuple[str, ...]
    documents: int
    tokens: int
    supervised: int
    truncated: int
    sha256: str

    @property
    def facts(self) -> dict[str, Any]:
        """Facts for ``training.json``."""
        return {
            "files": list(self.files),
            "documents": self.documents,
            "tokens": self.tokens,
            "supervised_tokens": self.supervised,
            "truncated_documents": self.truncated,
            "sha256": self.sha256,
        }


def check_channel(name: str, folder: Path, *, vocab: int, sequence_length: int) -> Channel:
    """Read all of a channel once.

    Raises:
        Mistake: it is empty, or a line is wrong; the message names file and line.
    """
    files = sorted(folder.rglob(PATTERN))
    if not files:
        raise Mistake(f"the channel {name} has no {PATTERN}; `peagle-sm learn data` writes such files")
    digest = hashlib.sha256()
    documents = tokens = supervised = truncated = 0
    for file in files:
        name_in_channel = file.relative_to(folder).as_posix()
        digest.update(f"{name_in_channel}\n".encode())
        with file.open("rb") as opened:
            for number, line in enumerate(opened, 1):
                digest.update(line)
                if not line.strip():
                    continue
                try:
                    ids, mask = read_line(line, vocab)
                except ValueError as error:
                    raise Mistake(f"{name}/{name_in_channel}, line {number}: {error}") from error
                documents += 1
                tokens += min(len(ids), sequence_length)
                supervised += sum(mask[1:sequence_length])
                truncated += len(ids) > sequence_length
    if not documents:
        raise Mistake(f"the channel {name} is empty: {len(files)} files without a line")
    if not supervised:
        raise Mistake(f"the channel {name}: no supervised token is within sequence_length={sequence_length}")
    names = tuple(file.relative_to(folder).as_posix() for file in files)
    return Channel(name, folder, names, documents, tokens, supervised, truncated, digest.hexdigest())


class Documents:
    """The documents of a checked channel, by number; each is read from the disk on access."""

    def __init__(self, folder: Path, files: tuple[str, ...], vocab: int, sequence_length: int) -> None:
        self._files = [(folder / name).open("rb") for name in files]
        self._places = array("Q")
        self._vocab, self._longest = vocab, sequence_length
        for number, opened in enumerate(self._files):
            place = 0
            for line in opened:
                if line.strip():
                    self._places.extend((number, place))
                place += len(line)

    def __len__(self) -> int:
        return len(self._places) // 2

    def __getitem__(self, number: int) -> tuple[list[int], list[int]]:
        opened = self._files[self._places[2 * number]]
        opened.seek(self._places[2 * number + 1])
        ids, mask = read_line(opened.readline(), self._vocab)
        return ids[: self._longest], mask[: self._longest]


def stream(documents: int, seed: int, start: int = 0) -> Iterator[int]:
    """Yield numbers of documents without end, one shuffle after the other, from position ``start``."""
    epoch, first = divmod(start, documents)
    while True:
        order = list(range(documents))
        random.Random(f"{seed} {epoch}").shuffle(order)
        yield from order[first:]
        epoch, first = epoch + 1, 0


def shares(
    documents: int, seed: int, *, start: int, micro: int, rank: int, world: int
) -> Iterator[list[int]]:
    """Yield the micro batches of one process: of each ``world * micro`` documents of the stream, its own."""
    rest = stream(documents, seed, start)
    while True:
        together = [next(rest) for _ in range(micro * world)]
        yield together[rank * micro : (rank + 1) * micro]


class Batches:
    """Loader for the library; its length is the number of remaining batches. It can be iterated once."""

    sampler = None

    def __init__(
        self, documents: Documents, *, seed: int, micro: int, rank: int, world: int, total: int
    ) -> None:
        self.documents, self.seed, self.micro, self.rank, self.world = documents, seed, micro, rank, world
        self.total, self.done, self.tokens = total, 0, 0

    def __len__(self) -> int:
        return self.total - self.done

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for _, numbers in zip(range(len(self)), self._numbers(), strict=False):
            rows = [self.documents[number] for number in numbers]
            self.tokens += sum(len(ids) for ids, _ in rows)
            yield padded(rows)

    def _numbers(self) -> Iterator[list[int]]:
        start = self.done * self.micro * self.world
        return shares(
            len(self.documents), self.seed, start=start, micro=self.micro, rank=self.rank, world=self.world
        )


class InOrder:
    """A loader of the documents in order; of several processes, each has its own part.

    All processes have the same number of documents, since a sharded target needs all of them for each pass.
    So if the processes do not divide the documents, some of the first ones are read twice.
    """

    sampler = None

    def __init__(self, documents: Documents, *, micro: int, rank: int, world: int) -> None:
        self.documents, self.micro = documents, micro
        count = len(documents)
        self.mine = [(rank + turn * world) % count for turn in range(-(-count // world))]

    def __len__(self) -> int:
        return -(-len(self.mine) // self.micro)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for at in range(0, len(self.mine), self.micro):
            yield padded([self.documents[number] for number in self.mine[at : at + self.micro]])


def padded(rows: list[tuple[list[int], list[int]]]) -> dict[str, Any]:
    """Return a batch of tensors, as long as its longest document; shorter ones are padded and masked."""
    import torch

    longest = max(len(ids) for ids, _ in rows)
    names = ("input_ids", "loss_mask", "attention_mask")
    batch = {name: torch.zeros(len(rows), longest, dtype=torch.long) for name in names}
    for number, (ids, mask) in enumerate(rows):
        batch["input_ids"][number, : len(ids)] = torch.tensor(ids)
        batch["loss_mask"][number, : len(ids)] = torch.tensor(mask)
        batch["attention_mask"][number, : len(ids)] = 1
    return batch
