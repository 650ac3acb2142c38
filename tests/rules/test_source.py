"""Rules about the text of the sources: patches, unfinished work, what belongs to one machine."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib

from tests.rules.files import ROOT, project_files, python_files, texts

# Joined at run time, so that this file does not hold what it forbids.
PATCHES = re.compile("|".join(("mock" + r"\.patch", "monkeypatch" + r"\.setattr", "Magic" + "Mock")))
MOTO_OF_ONES_OWN = re.compile("mock" + "_aws")
UNFINISHED = re.compile(
    "|".join(
        (r"\bTO" + r"DO\b", r"\bFIX" + r"ME\b", "NotImplemented" + "Error", r"except Exception: *" + "pass")
    )
)
ONE_MACHINE = re.compile(
    "|".join(
        (
            r"(?<![\w}])/ho" + r"me/[a-z]",
            r"(?<![\w}])/ro" + r"ot/",
            r"/Us" + r"ers/[A-Za-z]",
            r"\.\./sha" + r"red\b",
            r"pypi\.org/" + "simple",
            "files.pythonhosted" + r"\.org",
            "registry.npmjs" + r"\.org",
        )
    )
)
TORCH_INDEX = re.compile("download.pytorch" + r"\.org/whl")


def _hits(pattern: re.Pattern[str], *suffixes: str) -> list[str]:
    return [
        f"{path}:{number}: {line.strip()}"
        for path, text in texts()
        if not suffixes or path.suffix in suffixes
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_nothing_is_patched_or_mocked() -> None:
    assert not _hits(PATCHES, ".py"), "inject the session, client, clock or seed instead"


def test_moto_runs_in_the_one_local_server_only() -> None:
    assert not _hits(MOTO_OF_ONES_OWN, ".py"), (
        "use the fixture `server`: moto's stores are global to the process"
    )


def test_nothing_is_left_unfinished() -> None:
    assert not _hits(UNFINISHED, ".py", ".sh", ".md"), "finish it, or leave it out and say so in the README"


def test_mypy_reads_each_module_of_the_cdk_that_we_import() -> None:
    """The others are Any to it, so that it needs 40 s from an empty cache and not 110 s."""
    sources = [(ROOT / path).read_text(encoding="utf-8") for path in python_files()]
    trees = [ast.parse(source) for source in sources if "aws_cdk" in source]
    imports = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    ours = {"aws_cdk"}
    for node in imports:
        if node.module == "aws_cdk":
            ours |= {f"aws_cdk.{name.name}" for name in node.names if name.name.startswith("aws_")}
        elif (node.module or "").startswith("aws_cdk."):
            ours.add(str(node.module))
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    (read,) = [rule["module"] for rule in overrides if "aws_cdk" in rule["module"]]
    assert sorted(ours) == read


def test_nothing_belongs_to_one_machine() -> None:
    assert not _hits(ONE_MACHINE)


def test_the_index_of_torch_for_cpus_stands_in_one_place() -> None:
    assert len(_hits(TORCH_INDEX, ".py", ".sh", ".toml", ".lock", ".txt")) <= 1


def test_each_script_parses_and_may_be_run() -> None:
    faults = []
    for path in project_files():
        if path.parts[0] not in ("scripts", ".ci"):
            continue
        first = (ROOT / path).read_bytes().split(b"\n", 1)[0]
        if first.startswith(b"#!") and not (ROOT / path).stat().st_mode & 0o111:
            faults.append(f"{path}: it has a #! line but is not executable")
        if b"bash" in first:
            done = subprocess.run(
                ["bash", "-n", str(path)], cwd=ROOT, capture_output=True, text=True, check=False
            )
            faults += [f"{path}: {done.stderr.strip()}"] if done.returncode else []
    assert not faults, "\n".join(faults)
