"""Write the hashes of each pinned version from the package index into every lock file.

It runs with the Python of an environment that has `uv` (scripts/lib/relock makes one), which tells the hashes
of all files of a version without downloading them. It takes the index from pip's own configuration.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(ROOT / "toolkit" / "sagemaker-local"))
from sagemaker_local.engine.build import TORCH_CPU_INDEX  # noqa: E402
from scripts.lib.locks import Pin, comments, hashes_of, read_pins, render, with_hashes  # noqa: E402

_OLDEST = "3.11.5"
"""Some packages take no older patch release of 3.11; files for newer Pythons are told all the same."""


def lock_files() -> list[Path]:
    """Return every lock file of the project."""
    return [
        *sorted((ROOT / "requirements").glob("*.lock")),
        *sorted((ROOT / "container").glob("*.lock")),
        *sorted((ROOT / "toolkit" / "sagemaker-local").rglob("*.lock")),
    ]


def asked(pins: list[Pin], *options: str) -> dict[str, tuple[str, ...]]:
    """Return the hashes of the pins' files from an index.

    Raises:
        LookupError: it does not have them, or is out of reach; the message is uv's.
    """
    with tempfile.TemporaryDirectory() as folder:
        bare = Path(folder) / "bare.txt"
        bare.write_text("".join(f"{pin}\n" for pin in pins))
        uv = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "--no-deps"]
        uv += ["--generate-hashes", "--universal", "--python-version", _OLDEST, "--format", "pylock.toml"]
        ran = subprocess.run([*uv, *options, str(bare)], capture_output=True, text=True, check=False)
    if ran.returncode:
        raise LookupError(ran.stderr.strip())
    return hashes_of(ran.stdout)


def told(pins: list[Pin]) -> dict[str, tuple[str, ...]]:
    """Return the hashes of a lock file's pins; for PyTorch's builds (`+cpu`) from its own index."""
    index = os.environ.get("PIP_INDEX_URL") or _configured("index-url")
    hashes = asked(
        [pin for pin in pins if "+" not in pin.version], *(["--default-index", index] if index else [])
    )
    for pin in pins:
        if "+" in pin.version:
            try:
                hashes |= asked([pin], "--default-index", TORCH_CPU_INDEX)
            except LookupError:
                print(f"{pin}: PyTorch's index is out of reach; its hashes stay as they are", file=sys.stderr)
    return hashes


def _configured(setting: str) -> str:
    command = [sys.executable, "-m", "pip", "config", "get", f"global.{setting}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main(named: list[str]) -> int:
    """Rewrite the named lock files, by default all; a pin without a hash is an error."""
    bare = []
    for lock in [Path(name).resolve() for name in named] or lock_files():
        text = lock.read_text(encoding="utf-8")
        pins = read_pins(text)
        try:
            pins = with_hashes(pins, told(pins))
        except LookupError as error:
            sys.exit(f"{lock.relative_to(ROOT)}: the index did not tell its hashes:\n{error}")
        lock.write_text(render(comments(text), pins), encoding="utf-8")
        print(f"{lock.relative_to(ROOT)}: {len(pins)} packages", file=sys.stderr)
        bare += [f"{lock.relative_to(ROOT)}: {pin}" for pin in pins if not pin.hashes]
    if bare:
        print("no hash was found for:", *bare, sep="\n  ", file=sys.stderr)
    return 1 if bare else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
