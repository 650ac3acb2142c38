"""Build the documentation site with Zensical, then check every link of it: the job of scripts/docs."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from sagemaker_local.engine.locked_env import ensure_locked
from scripts.lib.site_links import faults

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "results" / "site"
LOCK = ROOT / "requirements" / "docs.lock"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def say(line: str) -> None:
    """Print a line of progress on stderr."""
    print(line, file=sys.stderr, flush=True)


def zensical() -> list[str]:
    """Return the command that runs Zensical, after building its environment where that is needed."""
    python = ensure_locked("docs", LOCK, "about 15 seconds, 140 MB", say)
    return [str(python), "-m", "zensical"]


def build() -> int:
    """Build into results/site; return 1 after a warning of Zensical's or a broken link."""
    command = zensical()
    began = time.monotonic()
    shutil.rmtree(SITE, ignore_errors=True)
    done = subprocess.run(
        [*command, "build", "--strict", "--clean"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        # Zensical ends a strict build with a traceback; its warnings come before it.
        say(_COLOUR.sub("", done.stdout + done.stderr).partition("Traceback")[0])
        say("The site was not built. Fix the pages above and run scripts/docs again.")
        return 1
    broken = faults(SITE)
    for line in broken:
        say(line)
    if broken:
        say(f"{len(broken)} broken links. Fix them in docs/ and run scripts/docs again.")
        return 1
    pages = len(list(SITE.rglob("*.html")))
    say(f"results/site: {pages} pages, {time.monotonic() - began:.0f} s. Open results/site/index.html")
    return 0


def serve(port: int) -> None:
    """Serve the site on loopback until Ctrl-C; pages are rebuilt when their source changes."""
    command = [*zensical(), "serve", "--dev-addr", f"127.0.0.1:{port}"]
    os.chdir(ROOT)
    os.execv(command[0], command)


def main(arguments: list[str] | None = None) -> int:
    """Build the site, or show it with --serve."""
    parser = argparse.ArgumentParser(prog="scripts/docs", description="Build the documentation site.")
    parser.add_argument(
        "--serve", nargs="?", type=int, const=8000, metavar="PORT", help="Show it on this machine.  [8000]"
    )
    port = parser.parse_args(arguments).serve
    if port is None:
        return build()
    serve(port)
    return 0


if __name__ == "__main__":
    sys.exit(main())
