"""The command line: parse, call the service, render. Nothing heavy is imported before a command needs it."""


def main() -> None:
    """Run `peagle-sm` with the process's arguments and exit with its documented code."""
    from peagle_sm.cli.app import app

    app.main()
