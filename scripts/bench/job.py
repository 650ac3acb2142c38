"""Shared parts of benchmark jobs: exit codes for errors, clean-up on signals, results files."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from peagle_sm.core.errors import EngineError, Interrupted, PeagleError
from sagemaker_local.errors import LocalError
from scripts.bench.progress import Reporter


def run_job(job: Callable[[Reporter], int], reporter: Reporter | None = None) -> int:
    """Run ``job``; print its errors with the next step, and always the seconds of its phases.

    Ctrl-C and SIGTERM raise KeyboardInterrupt inside it, so that its clean-up runs; then 130.
    """
    reporter = reporter or Reporter()
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = job(reporter)
    except (KeyboardInterrupt, Interrupted):
        reporter.say("interrupted")
        code = Interrupted.exit_code
    except (PeagleError, LocalError) as error:
        reporter.say(f"error: {error}")
        for line in error.details.get("log_tail", []):
            reporter.say(f"   | {line}")
        if error.next_step:
            reporter.say(f"next: {error.next_step}")
        code = error.exit_code if isinstance(error, PeagleError) else EngineError.exit_code
    finally:
        signal.signal(signal.SIGTERM, previous)
    if reporter.seconds:
        reporter.say("seconds by phase:\n" + reporter.times())
    return code


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write ``document`` as JSON, whole or not at all; create the folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(document, indent=1, sort_keys=False) + "\n", encoding="utf-8")
    part.replace(path)
    print(f"written: {path}", file=sys.stderr)
