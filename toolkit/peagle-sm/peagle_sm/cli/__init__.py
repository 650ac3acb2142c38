"""The command line: parse the arguments, call the service, render the result.

Each command imports heavy modules itself, so that --help stays fast.
"""

import os
import sys


def main() -> None:
    """Run `peagle-sm` with the process's arguments and exit with its documented code."""
    _replace_closed_streams()
    from peagle_sm.cli.app import app

    app.main()


def _replace_closed_streams() -> None:
    """Give each closed standard stream (`<&-`, `>&-`, a service without any) the null device.

    Python has None for a closed one. Otherwise the next file or socket that is opened would get its number,
    and what a child process prints would go there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
