"""What an interrupted tuning has measured already: whole windows of its results file."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.records import Load, Mode, Record, RequestRecord, WindowRecord
from peagle_sm.measure.result_file import read
from peagle_sm.measure.tune.arms import label
from peagle_sm.measure.tune.pace import Pace
from peagle_sm.measure.tune.reading import Reading, reading_in
from peagle_sm.measure.tune.side import Side


class Measured:
    """The windows of an earlier run, each to be taken once, in the order in which they were measured.

    The strategies decide by their readings alone: a run that gets the same readings continues the same way.
    """

    def __init__(self, windows: Iterable[WindowRecord] = ()) -> None:
        self._left: dict[tuple[str, int, int, int], deque[WindowRecord]] = defaultdict(deque)
        for one in windows:
            self._left[one.mode, one.k, one.concurrency, one.block].append(one)

    def take(self, mode: str, k: int, concurrency: int, block: int) -> WindowRecord | None:
        """Return the next window of these settings, None where it is still to be measured."""
        left = self._left.get((mode, k, concurrency, block))
        return left.popleft() if left else None

    def has_all(self, mode: str, k: int, concurrencies: Collection[int]) -> bool:
        """Whether K was measured at every concurrency, so that it need not be deployed again."""
        found = {c for (m, one, c, _), left in self._left.items() if (m, one) == (mode, k) and left}
        return found >= set(concurrencies)


@dataclass
class Resumed:
    """A side that measures only what is not there yet; ``side`` None where nothing was deployed for it."""

    mode: Mode
    measured: Measured
    side: Side | None
    pace: Pace
    untrusted: list[str]

    def read(self, k: int, concurrency: int, block: int) -> Reading:
        """Return the window of the earlier run, or measure it.

        Raises:
            SpecError: the file lacks it, and nothing was deployed to measure it.
        """
        known = self.measured.take(self.mode, k, concurrency, block)
        if known is not None:
            self.pace.skip()
            if known.untrusted is not None:
                self.untrusted.append(known.untrusted)
            return reading_in(known)
        if self.side is None:
            raise SpecError(
                f"the results file lacks {label(self.mode, k)} c={concurrency} in round {block}",
                next_step="start a run of its own in another file (--out)",
            )
        return self.side.read(k, concurrency, block)


def of_whole_windows(path: Path) -> Callable[[Record], bool]:
    """What stays in a resumed file: requests of a window that was cut short are measured again."""
    whole = {
        (label(one.mode, one.k), Load("closed", concurrency=one.concurrency), one.block)
        for one in read(path).windows
    }
    return lambda record: (
        not isinstance(record, RequestRecord) or (record.arm, record.load, record.block) in whole
    )
