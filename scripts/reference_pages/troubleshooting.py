"""Page of error messages: every message in the code with a next step, read from the source."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from peagle_sm.core.errors import EXIT_CODES

TOOLKIT = Path(__file__).resolve().parents[2] / "toolkit"
_LOCAL = 1000
_DEFAULT = "The message's own line `next:` says what to do."
_INTRO = """\
# Troubleshooting

## By symptom

| what you see | what to do |
|---|---|
| P-EAGLE is no faster than no speculation, and the answers are right | Look at the acceptance length: `peagle-sm status NAME`, `peagle-sm invoke NAME -p …`. Near 1 means that the drafts are rejected: `peagle-sm heads check` says whether the head fits. Else your load may be too high: [When not to use this](../explanation/when-not.md). |
| a deploy takes long, or ends with exit code 7 | `peagle-sm logs NAME`. The error shows AWS's reason and the engine's last lines; everything that was created is deleted again. |
| a deploy was killed, or the machine went off | Run `peagle-sm list`. The next `peagle-sm deploy` of the same spec continues; the lifetime schedule deletes the endpoint anyway. |
| the endpoint is gone, and nobody deleted it | `peagle-sm guard status` and `peagle-sm status NAME` show why the guard turned it off. `peagle-sm resume NAME` brings it back, `peagle-sm keep NAME 2h` keeps it. |
| a stream ends in the middle of a word | Other client libraries may end without an error: [Choose a client library](../how-to/clients.md). Ours raises `StreamCut`: [Read a stream](../how-to/streams.md). |
| greedy answers differ between two endpoints | They also differ between two runs of the same GPU. `peagle-sm verify` measures that first: [Check the answers](../how-to/verify.md). |
| `compare` says "not significant" | The difference is smaller than the data can show. More prompts (`--prompts`), or deployments (`--deployments`), narrow the interval: [Measure and compare](../how-to/measure.md). |
| figures are withheld | The client was the bottleneck: [When figures are withheld](../how-to/measure.md#when-figures-are-withheld). |
| something billable may remain (exit code 8) | The error names it, with the command that deletes it. `peagle-sm list --all` shows every endpoint of the region. |
| a local endpoint does not start | `peagle-sm doctor --local` checks memory, disk, packages and the engine's environment. |
| something is wrong, and no message fits | `peagle-sm doctor`, then the same command with `--debug`, which shows the traceback. |

## By message

`scripts/reference` writes this part from the source. `…` stands for a value. Search for a few words of your message. An error
on the terminal has the same two parts: the message, and `next:` with what to do.
"""  # noqa: E501


@dataclass(frozen=True, order=True)
class Message:
    """An error of the code: its exit code (_LOCAL: an answer of the local SageMaker), text and next step."""

    exit_code: int
    text: str
    next_step: str


def troubleshooting_page() -> str:
    """Return the page: symptoms, then every message by exit code."""
    groups: dict[int, list[Message]] = defaultdict(list)
    for message in sorted(set(messages()), key=lambda each: (each.exit_code, each.text.lower(), each)):
        groups[message.exit_code].append(message)
    parts = [_INTRO]
    for code in sorted(groups):
        meaning = EXIT_CODES.get(code)
        title = f"Exit code {code}" if meaning else "Answers of the local SageMaker"
        parts.append(f"### {title}\n")
        parts += [f"{meaning[0].upper()}{meaning[1:]}.\n"] if meaning else []
        rows = [f"| {_cell(each.text)} | {_cell(each.next_step)} |" for each in groups[code]]
        parts.append("\n".join(["| message | what to do |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


def messages() -> Iterator[Message]:
    """Yield every error of the packages that is written with a message and a next step."""
    product = [tree for name in ("peagle_sm", "peagle_bench", "peagle_learn") for tree in _trees(name)]
    local = _trees("sagemaker_local")
    codes = _exit_codes(product)
    yield from _in(product, codes)
    # The product raises the emulator's errors again as its own class of the same name.
    yield from _in(local, {**dict.fromkeys(_exit_codes(local), _LOCAL), **codes})


def _trees(package: str) -> list[ast.Module]:
    paths = sorted(TOOLKIT.glob(f"*/{package}/**/*.py"))
    return [ast.parse(path.read_text(encoding="utf-8")) for path in paths]


def _in(trees: list[ast.Module], codes: Mapping[str, int]) -> Iterator[Message]:
    for node in (each for tree in trees for each in ast.walk(tree)):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        step = next((each.value for each in node.keywords if each.arg == "next_step"), None)
        name, text = ast.unparse(node.func).rpartition(".")[2], _text(node.args[0])
        if step is not None and name in codes and len(re.findall(r"[A-Za-z]{3}", text)) > 2:
            yield Message(codes[name], text, _text(step) or _DEFAULT)


def _exit_codes(trees: list[ast.Module]) -> dict[str, int]:
    """Return the exit code of each error class by its name; _LOCAL where it has none."""
    classes = {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}

    def code(name: str) -> int | None:
        node = classes.get(name)
        if node is None:
            return _LOCAL if name == "Exception" else None
        for each in node.body:
            if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "exit_code":
                return int(ast.unparse(each.value))
            if isinstance(each, ast.AnnAssign) and ast.unparse(each.target) == "exit_code" and each.value:
                return int(ast.unparse(each.value))
        bases = [code(ast.unparse(base)) for base in node.bases]
        return next((each for each in bases if each is not None), None)

    return {name: found for name in classes if (found := code(name)) is not None}


def _text(node: ast.expr) -> str:
    """Return what is literal of an expression, with … for each value."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(each) if isinstance(each, ast.Constant) else "…" for each in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return f"{_text(node.left) or '…'}{_text(node.right) or '…'}"
    if isinstance(node, ast.BoolOp):
        return _text(node.values[-1])
    if isinstance(node, ast.IfExp):
        return " / ".join(filter(None, (_text(node.body), _text(node.orelse))))
    return ""


def _cell(text: str) -> str:
    plain = re.sub(r"(?:…\s*){2,}", "…", " ".join(text.split()))
    return re.sub(r"([*_<\[\]])(?![^`]*`(?:[^`]*`[^`]*`)*[^`]*$)", r"\\\1", plain).replace("|", "\\|")
