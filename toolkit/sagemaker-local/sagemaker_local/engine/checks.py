"""Checks of other packages before an engine starts, for example of its draft head.

A package registers a function under the entry point group ``sagemaker_local.engine_checks``. It gets the
container's environment and the directory in which ``/opt/ml`` lies as ``opt/ml``, and returns why the engine
must not start, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path

GROUP = "sagemaker_local.engine_checks"

EngineCheck = Callable[[Mapping[str, str], Path], str | None]


def installed_checks() -> list[EngineCheck]:
    """Load every check that an installed package registers."""
    return [point.load() for point in sorted(entry_points(group=GROUP), key=lambda point: point.name)]


def refusal_of(checks: Sequence[EngineCheck], environment: Mapping[str, str], root: Path) -> str | None:
    """Return the first check's reason why the engine must not start, or None."""
    for check in checks:
        reason = check(environment, root)
        if reason:
            return reason
    return None
