"""Runs jobs in parallel, each after the jobs that it depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

# How many resources of one stack are worked on at once.
_SIDE_BY_SIDE = 8


@dataclass(frozen=True)
class Outcome:
    """Jobs that succeeded, that failed, and that never started."""

    done: frozenset[str]
    failed: frozenset[str]
    left: frozenset[str]

    @property
    def complete(self) -> bool:
        """Whether every job succeeded."""
        return not self.failed and not self.left


def run(
    needs: Mapping[str, frozenset[str]],
    work: Callable[[str], bool],
    *,
    may_begin: Callable[[], bool] = lambda: True,
    stop_at_failure: bool = True,
) -> Outcome:
    """Run ``work`` for each name, after its dependencies; ``work`` returns whether it succeeded.

    After a failure no job starts (without ``stop_at_failure``: no job that depends on a failed one), and
    running jobs finish. An exception from ``work`` is raised when no job runs any more.
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
