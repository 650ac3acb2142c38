"""`peagle-sm help`: the help of a command, or a page of the documentation.

The pages are in the wheel, so that a message can name one wherever peagle-sm is installed.
"""

from __future__ import annotations

import sys
from difflib import get_close_matches
from pathlib import Path

import click

from peagle_sm.cli.app import App
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import emit

_PACKAGE = Path(__file__).resolve().parents[2]
_FOLDERS = ("how-to", "reference", "explanation", "tutorials")  # of two pages with one name, the first counts


@click.command("help", cls=Command)
@click.argument("topic", nargs=-1)
@global_options
@click.pass_context
def help_(ctx: click.Context, topic: tuple[str, ...]) -> None:
    """Show the help of a command, or a page of the documentation.

    TOPIC is a command (`deploy`, `guard install`) or a page (`streams`, or with its folder
    `explanation/guard`). `all` lists every command. Without TOPIC, the names of the pages are listed.
    """
    state: State = ctx.obj
    pages = _pages()
    if not topic:
        emit(
            state,
            table=lambda: _listing(pages),
            data=lambda: [{"topic": name, "path": str(path)} for name, path in pages.items()],
            names=pages,
        )
        return
    root = ctx.find_root()
    if topic == ("all",) and isinstance(root.command, App):
        click.echo(root.command.all_commands(root))
        return
    if command := _command(root, topic):
        click.echo(command.get_help())
        return
    name = " ".join(topic)
    path = pages.get(name) or next((pages[key] for key in pages if key.endswith(f"/{name}")), None)
    if path is None:
        short = [key.partition("/")[2] for key in pages]
        close = get_close_matches(name, [*pages, *short], n=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        raise click.UsageError(f"No such topic {name!r}.{guess} `peagle-sm help` lists the pages.", ctx=ctx)
    _print_page(path.read_text(encoding="utf-8"))


def _pages() -> dict[str, Path]:
    """Find the pages by folder and name, in the wheel or in the checkout."""
    root = next(
        (
            folder
            for folder in (_PACKAGE / "_docs", _PACKAGE.parents[2] / "docs")
            if (folder / "how-to").is_dir()
        ),
        None,
    )
    if root is None:
        return {}
    return {
        f"{folder}/{path.stem}": path
        for folder in _FOLDERS
        for path in sorted((root / folder).glob("*.md"))
        if path.stem != "index"
    }


def _listing(pages: dict[str, Path]) -> str:
    lines = ["Pages: `peagle-sm help NAME` shows one, with or without its folder."]
    for folder in _FOLDERS:
        lines += ["", *(name for name in pages if name.startswith(f"{folder}/"))]
    return "\n".join(lines)


def _command(root: click.Context, words: tuple[str, ...]) -> click.Context | None:
    """Return the context of the command with this name; None if there is none."""
    context = root
    for word in words:
        group = context.command
        command = group.get_command(context, word) if isinstance(group, click.Group) else None
        if command is None:
            return None
        context = click.Context(command, info_name=word, parent=context)
    return context


def _print_page(text: str) -> None:
    """Print Markdown: on a terminal with headings and wrapped lines, elsewhere unchanged."""
    if not sys.stdout.isatty():
        click.echo(text, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(text))
