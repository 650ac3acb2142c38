"""Looks at the draft head that a local engine is about to load: a bad one would draft nonsense in silence.

The local SageMaker calls `refused_head` before it starts an engine (entry point in pyproject.toml).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from peagle_sm.core.heads import inspect_head, local_folder
from peagle_sm.core.plan.environment import MODEL_MOUNT, SPECULATIVE_CONFIG

_SHOWN = 5


def refused_head(environment: Mapping[str, str], root: Path) -> str | None:
    """Say why the engine must not start with its draft head; None when nothing is wrong with it.

    Args:
        environment: the container's, as CreateModel has it.
        root: the directory in which ``/opt/ml`` lies as ``opt/ml``.
    """
    try:
        wanted = json.loads(environment.get(SPECULATIVE_CONFIG, "{}"))
        head = root / str(wanted["model"]).lstrip("/")
        json.loads((head / "config.json").read_text())
    except (ValueError, KeyError, TypeError, OSError):
        # Not a head in a directory of ours: vLLM says what it thinks of the rest itself.
        return None
    parallel = wanted.get("parallel_drafting") is True
    report = inspect_head(
        local_folder(head),
        target=_config_of(root / MODEL_MOUNT.lstrip("/")),
        mode="p-eagle" if parallel else "eagle3",
    )
    errors = [fault.message for fault in report.faults if fault.severity == "error"]
    if not errors:
        return None
    more = f" (and {len(errors) - _SHOWN} more)" if len(errors) > _SHOWN else ""
    return f"the draft head at {wanted['model']} must not be used: {'; '.join(errors[:_SHOWN])}{more}"


def _config_of(model: Path) -> dict[str, Any] | None:
    try:
        config = json.loads((model / "config.json").read_text())
    except (ValueError, OSError):
        return None
    return config if isinstance(config, dict) else None
