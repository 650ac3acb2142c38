"""A small real training program that does as its hyperparameters say.

It reads SageMaker's files below PEAGLE_ML_ROOT. Hyperparameters, all optional, in the order of their effect:
    say         lines to print, separated by |
    report      "1": writes model/HOST.json with the configuration, the variables and the files that it found
    write       JSON {path below /opt/ml: text}
    detach      "1": starts a process in a session of its own that would stay, and prints `detached PID`
    hold        "term": waits for SIGTERM, unless a checkpoint is there; "always": waits for it in any case
    on_term     JSON {path: text} written on SIGTERM, before it exits with 143; or "ignore"
    fail        text for output/failure
    exit        exit status
Only the host in `only` does `hold`, `fail` and `exit` (default: all).
"""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any


async def scripted_trainer(on_line: Any) -> list[str]:
    """Return the command, as `sagemaker_local.engine.building.build_trainer` does."""
    on_line("[peagle-sm local] a scripted trainer")
    return [sys.executable, "-S", __file__]


def files_below(root: Path) -> dict[str, str]:
    rows = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_text() for path in rows}


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def report(root: Path) -> dict[str, Any]:
    config = root / "input" / "config"
    return {
        **{path.stem: json.loads(path.read_text()) for path in sorted(config.iterdir())},
        "environ": dict(os.environ),
        "data": files_below(root / "input" / "data"),
        "checkpoints": files_below(root / "checkpoints"),
    }


def main() -> int:
    root = Path(os.environ["PEAGLE_ML_ROOT"])
    script = json.loads((root / "input/config/hyperparameters.json").read_text())
    host = json.loads((root / "input/config/resourceconfig.json").read_text())["current_host"]
    resumed = any((root / "checkpoints").iterdir())
    ended = threading.Event()
    if script.get("on_term") == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
    print(script.get("say", "training").replace("|", "\n"), flush=True)
    if script.get("report"):
        write(root, {f"model/{host}.json": json.dumps(report(root))})
    write(root, json.loads(script.get("write", "{}")))
    if script.get("detach"):
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True
        )
        print(f"detached {child.pid}", flush=True)
    if script.get("only", host) != host:
        return 0
    hold = script.get("hold")
    if hold == "always" or (hold == "term" and not resumed):
        print("holding", os.getpid(), flush=True)
        while not ended.wait(0.05):
            pass
        write(root, json.loads(script.get("on_term", "{}")))
        return 143
    if "fail" in script:
        write(root, {"output/failure": script["fail"]})
    return int(script.get("exit", "0"))


if __name__ == "__main__":
    sys.exit(main())
