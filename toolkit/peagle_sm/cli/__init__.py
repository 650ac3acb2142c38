"""The command line: parse the arguments, call the service, render the result.

Each command imports heavy modules itself, so that --help stays fast.
"""


def main() -> None:
    """Run `peagle-sm` with the process's arguments and exit with its documented code."""
    from peagle_sm.cli.app import app

    app.main()
