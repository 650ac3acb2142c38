"""The quickstart in docs/how-to/measure.md: the job of ``scripts/measure-page``, which adds the pictures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peagle_bench.report.markdown import markdown
from peagle_bench.report.merging import view_of
from peagle_bench.report.verdict import verdict
from peagle_bench.results.result_file import Results, read
from peagle_sm.core.errors import PeagleError, SpecError
from scripts.bench.marked_page import insert

BEGIN = "<!-- quickstart: written by scripts/measure-page -->"
END = "<!-- end of quickstart -->"


def section(results: Results) -> str:
    """The command that measures it again, the pictures, and the tables.

    Raises:
        SpecError: the file is not of a quickstart.
    """
    if results.header.command != "quickstart":
        raise SpecError(
            f"the file is of a {results.header.command}; the page shows a quickstart",
            next_step="run scripts/quickstart, which writes results/quickstart.jsonl",
        )
    conclusion = verdict(view_of([results]))
    words = f"{conclusion.headline} ({', '.join(conclusion.limits)})"
    # A picture of a wide page would have text of 4 px on a phone.
    narrow = "(max-width: 600px)"
    picture = (
        "<picture>\n"
        f'  <source media="{narrow} and (prefers-color-scheme: dark)" srcset="measure-narrow-dark.png">\n'
        f'  <source media="{narrow}" srcset="measure-narrow-light.png">\n'
        '  <source media="(prefers-color-scheme: dark)" srcset="measure-dark.png">\n'
        f'  <img alt="The beginning of the report: {words}" src="measure-light.png">\n'
        "</picture>"
    )
    again = f"```bash\n{command(results.header.config)}\n```"
    sentence = "The same as Markdown, as `peagle-sm report results/quickstart.jsonl --markdown` gives it:"
    return f"{again}\n\n{picture}\n\n{sentence}\n\n{markdown([results], title='P-EAGLE quickstart').rstrip()}"


def command(config: Mapping[str, Any]) -> str:
    """What measures every figure again, and writes this part of the page."""
    return (
        f"scripts/measure-page --run --prompts {config['workload']['prompts']}"
        f" --max-tokens {config['max_tokens']} --seed {config['seed']}"
    )


def main(words: Sequence[str] | None = None) -> int:
    """Write the page's part; 0, or the error's exit code."""
    parser = argparse.ArgumentParser(prog="scripts/measure-page", description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results/quickstart.jsonl"))
    parser.add_argument("--page", type=Path, default=Path("docs/how-to/measure.md"))
    options = parser.parse_args(words)
    try:
        written = section(read(options.results))
    except PeagleError as error:
        print(f"error: {error}\nnext: {error.next_step}", file=sys.stderr)
        return error.exit_code
    page = options.page.read_text(encoding="utf-8")
    options.page.write_text(insert(page, BEGIN, END, written), encoding="utf-8")
    print(f"written: {options.page}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
