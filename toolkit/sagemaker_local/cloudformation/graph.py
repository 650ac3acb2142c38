"""Jobs that stand on one another, run side by side as far as that allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

# How many resources of one stack are worked on at once.
_SIDE_BY_SIDE = 8


@dataclass(frozen=True)
class Outcome:
    """Which jobs were done, which failed, and which were never begun."""

    done: frozenset[str]
    failed: frozenset[str]
    left: frozenset[str]

    @property
    def complete(self) -> bool:
        """Whether every job was done."""
        return not self.failed and not self.left


def run(
    needs: Mapping[str, frozenset[str]],
    work: Callable[[str], bool],
    *,
    may_begin: Callable[[], bool] = lambda: True,
    stop_at_failure: bool = True,
) -> Outcome:
    """Run ``work`` for each name, after those that it needs; ``work`` says whether it went well.

    After a failure nothing new begins (or, without ``stop_at_failure``, nothing that needs what failed);
    what is under way is waited for. An exception from ``work`` is raised once nothing is under way.
    """
    waiting = {name: needed & needs.keys() for name, needed in needs.items()}
    done: set[str] = set()
    failed: set[str] = set()
    running: dict[Future[bool], str] = {}
    with ThreadPoolExecutor(_SIDE_BY_SIDE, thread_name_prefix="resource") as pool:
        while True:
            if may_begin() and not (failed and stop_at_failure):
                for name in [name for name, needed in waiting.items() if needed <= done]:
                    del waiting[name]
                    running[pool.submit(work, name)] = name
            if not running:
                return Outcome(frozenset(done), frozenset(failed), frozenset(waiting))
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                (done if future.result() else failed).add(running.pop(future))
