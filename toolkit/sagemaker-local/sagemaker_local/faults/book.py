"""The faults that are set, and which of them applies to the next call."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sagemaker_local.errors import NotFound
from sagemaker_local.faults.fault import Fault


@dataclass(frozen=True)
class Strike:
    """A fault applied to one call; ``chance`` chooses its random positions, the same for the same seed."""

    fault: Fault
    chance: random.Random

    @property
    def kind(self) -> str:
        """The kind of fault."""
        return self.fault.kind

    def option(self, name: str) -> Any:
        """Return the fault's value of an option."""
        return self.fault.options[name]


@dataclass
class Entry:
    """One fault that is set, and how often it was applied."""

    id: str
    fault: Fault
    struck: int = 0
    draws: random.Random = field(default_factory=random.Random)

    @property
    def spent(self) -> bool:
        """Whether it was applied the requested number of times."""
        return self.fault.times is not None and self.struck >= self.fault.times

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values; ``left`` is None if it has no limit."""
        left = None if self.fault.times is None else self.fault.times - self.struck
        return {"id": self.id, **self.fault.to_dict(), "struck": self.struck, "left": left}


class FaultBook:
    """Keeps faults in the order in which they were added. One event loop uses it, so it has no lock."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._numbers = itertools.count(1)

    def add(self, fault: Fault) -> Entry:
        """Add a fault."""
        entry = Entry(f"f{next(self._numbers)}", fault, draws=random.Random(fault.seed))
        self._entries.append(entry)
        return entry

    def entries(self) -> list[Entry]:
        """The faults that are set, oldest first."""
        return list(self._entries)

    def clear(self, ids: Sequence[str] = ()) -> list[Entry]:
        """Remove the faults of these ids, or all of them, and return them.

        Raises:
            NotFound: an id does not exist; nothing is removed then.
        """
        known = {entry.id for entry in self._entries}
        missing = [each for each in ids if each not in known]
        if missing:
            raise NotFound(
                f"there is no fault {missing[0]!r}; existing faults: {', '.join(sorted(known)) or 'none'}",
                next_step="peagle-sm local fault list",
            )
        gone = [entry for entry in self._entries if not ids or entry.id in ids]
        self._entries = [entry for entry in self._entries if entry not in gone]
        return gone

    def strike(self, operation: str, endpoint: str) -> Strike | None:
        """Return the fault for one call: the oldest that matches and wins its random draw, or None.

        A fault that was applied for the last time is removed here.
        """
        for entry in self._entries:
            fault = entry.fault
            if not fault.applies_to(operation, endpoint) or entry.draws.random() >= fault.probability:
                continue
            entry.struck += 1
            if entry.spent:
                self._entries.remove(entry)
            # Each application has its own random positions; the first of a seed is always the same.
            return Strike(fault, random.Random(f"{fault.seed}/{entry.struck}"))
        return None
