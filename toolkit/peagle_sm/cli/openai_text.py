"""What `peagle-sm openai` and `peagle-sm serve` print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from peagle_sm.cli.status_text import when

SHELLS = ("bash", "zsh", "fish", "powershell")


def shell_of(environ: Mapping[str, str]) -> str:
    """Return the shell whose syntax to print by default."""
    return "fish" if environ.get("SHELL", "").rpartition("/")[2] == "fish" else "bash"


def export_lines(shell: str, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield one line for each variable that a shell can evaluate, whatever the value holds."""
    for name, value in variables.items():
        if shell == "powershell":
            yield f"$env:{name} = '{value.replace(chr(39), chr(39) * 2)}'"
        elif shell == "fish":
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            yield f"set -gx {name} '{escaped}'"
        else:
            quoted = value.replace("'", "'\"'\"'")
            yield f"export {name}='{quoted}'"


def advice(name: str, expires_at: datetime, flags: str, hours: float) -> Iterator[str]:
    """Yield what a person must know beside the lines: the end, the model's name, and what is not served."""
    longer = "" if hours > 11 else "; --hours 12 is the most"
    yield f"the token ends at {when(expires_at)}{longer}; run this again for a new one"
    yield 'model: leave it empty ("" in the request): the endpoint has one model, and the URL names it'
    yield (
        "served: chat completions only; for tools that insist on a model's name, on /v1/models, "
        f"/v1/completions or /v1/responses: peagle-sm serve {name}{flags}"
    )


def cost_line(usd_per_hour: float | None, expires_at: datetime | None) -> str:
    """Return the endpoint's price and the end of its life, which go on whether anybody asks or not."""
    price = "price unknown" if usd_per_hour is None else f"{usd_per_hour:,.2f} USD/hour while it is on"
    end = f"deleted at {when(expires_at)} whatever happens" if expires_at else "NO lifetime limit ends it"
    return f"{price}; {end}"
