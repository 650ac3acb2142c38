"""Write the report of a results file into the marked part of a page.

    python -m scripts.bench.report_page docs/how-to/k-by-load.md results/tune-….jsonl

The page has the command that measures the figures; this is what `peagle-sm report FILE --markdown` prints.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from peagle_bench.report.markdown import markdown
from peagle_bench.results.result_file import read
from peagle_sm.aws.files import write_file
from peagle_sm.core.errors import PeagleError
from scripts.bench.marked_page import insert

BEGIN, END = "<!-- report: scripts.bench.report_page writes this part -->", "<!-- end of report -->"


def main(words: Sequence[str] | None = None) -> int:
    """Write the page's part; 0, or the error's exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.bench.report_page", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("page", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--title", default="SmolLM2-135M-Instruct", help="heading (default %(default)s)")
    options = parser.parse_args(words)
    try:
        report = markdown([read(options.results)], title=options.title).rstrip()
        page = options.page.read_text(encoding="utf-8")
        write_file(options.page, insert(page, BEGIN, END, report))
    except PeagleError as error:
        print(f"error: {error}\nnext: {error.next_step}", file=sys.stderr)
        return error.exit_code
    except (OSError, ValueError) as error:  # no such page, or no marks in it
        print(f"error: {options.page}: {error}\nnext: give a page with {BEGIN}", file=sys.stderr)
        return 2
    print(f"written: {options.page}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
