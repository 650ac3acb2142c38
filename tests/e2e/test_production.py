"""docs/tutorials/onto-aws.md, walked from its first command to its last against the local server.

Its commands are meant for AWS: here PEAGLE_SM_LOCAL and PEAGLE_SM_LOCAL_PORT lead them to the local
server, and `--yes` answers what they ask. The engines are scripted; NOT_HERE has every command that is left
out, with the reason and where it is run.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.running import run
from tests.local.serving import Server
from tests.rules.documents import blocks
from tests.rules.files import ROOT

pytestmark = pytest.mark.slow

PAGE = Path("docs/tutorials/onto-aws.md")
# `chat` reads its turns from a pipe here.
TYPED = {"chat": "hello\n"}
ASKS = (
    "guard install",
    "guard uninstall",
    "deploy",
    "keep",
    "update",
    "pause",
    "resume",
    "delete",
)
# After the last uninstall there is no guard: that is the page's proof.
EXIT_CODES = {"guard status": (0, 4)}
HEADS = "toolkit/peagle-sm/tests/cli/test_heads.py"
NOT_HERE = {
    "aws logs": "the AWS CLI; delete shows the command: toolkit/peagle-sm/tests/cli/test_cycle.py",
    "pip install": "the package index is not asked; tests/e2e/test_wheel.py installs the wheel",
    "peagle-sm heads check": f"asks the hub; {HEADS}, against a hub on this machine",
    "peagle-sm heads stage": f"the same, into the local S3: {HEADS}",
    "peagle-sm serve": "serves until Ctrl-C: tests/e2e/test_openai_document.py",
    "peagle-sm bench": "wants the real engine's figures: tests/e2e/test_measuring.py",
    "peagle-sm compare": "the same: tests/e2e/test_measuring.py",
    "peagle-sm verify": "the same: tests/e2e/test_measuring.py",
    "peagle-sm deploy none.yaml": "the baseline of verify: tests/e2e/test_measuring.py",
    "peagle-sm delete demo-none": "the baseline of verify: tests/e2e/test_measuring.py",
    "peagle-sm tune": "the same: tests/e2e/test_measuring.py",
    "peagle-sm cost": "reads what bench wrote: tests/e2e/test_measuring.py",
    "peagle-sm report": "reads what bench wrote: tests/e2e/test_measuring.py",
}


def _lines() -> list[str]:
    """Every command of the page, in its order."""
    texts = [block.text for block in blocks("bash") if block.path == PAGE]
    return [line for text in texts for line in text.splitlines() if line.strip()]


def _reason(line: str) -> str | None:
    return next((reason for start, reason in NOT_HERE.items() if line.startswith(start)), None)


HERE = [line for line in _lines() if _reason(line) is None]


def _spec() -> str:
    (block,) = (block for block in blocks("yaml") if block.path == PAGE)
    return block.text


@pytest.fixture
def environ(server: Server, in_empty_folder: Path) -> Iterator[dict[str, str]]:
    """What leads the commands here; whatever is left is removed, since other tests use the server too."""
    variables = {"PEAGLE_SM_LOCAL": "1", "PEAGLE_SM_LOCAL_PORT": str(server.status.port)}
    yield variables
    run("delete", "demo", "--yes", "--format", "quiet", environ=variables)
    run("guard", "uninstall", "--yes", "--format", "quiet", environ=variables)


def _run(line: str, environ: dict[str, str]) -> Result:
    words = shlex.split(line)[1:]
    asks = any(words[: len(command.split())] == command.split() for command in ASKS)
    return run(*words, *(["--yes"] if asks else []), environ=environ, stdin=TYPED.get(words[0], ""))


def test_the_page_from_an_empty_account_and_back(environ: dict[str, str], in_empty_folder: Path) -> None:
    codes = []
    for line in HERE:
        result = _run(line, environ)
        allowed = next((codes for start, codes in EXIT_CODES.items() if start in line), (0,))
        assert result.exit_code in allowed, f"{line}\n{result.output}"
        codes.append(result.exit_code)
        if line.startswith("peagle-sm init"):
            # The reader puts the page's spec in; the scripted engine is told to answer as OpenAI's API.
            scripted = _spec().replace("  max_model_len:", "  env: {SCRIPT_INVOKE: openai}\n  max_model_len:")
            (in_empty_folder / "peagle.yaml").write_text(scripted)
        if line.startswith("peagle-sm guard sweep"):
            # `update` needs something to change.
            path = in_empty_folder / "peagle.yaml"
            path.write_text(
                path.read_text().replace("num_speculative_tokens: 7", "num_speculative_tokens: 5")
            )
        if line.startswith("peagle-sm invoke"):
            assert "token0" in result.stdout
        if line.startswith("peagle-sm delete"):
            left = run("list", "--format", "json", environ=environ)
            assert [row for row in json.loads(left.stdout) if row["name"] == "demo"] == []
    assert HERE[-1] == "peagle-sm guard status"
    assert codes[-1] == 4


def test_what_is_not_run_here_is_run_where_it_is_said() -> None:
    left_out = [line for line in _lines() if _reason(line)]
    assert len(HERE) > len(left_out)
    for start, reason in NOT_HERE.items():
        assert any(line.startswith(start) for line in left_out), f"{start} is not on the page any more"
        path = re.search(r"(?:toolkit/[\w-]+/)?tests/\S+\.py", reason)
        assert path is not None
        assert (ROOT / path[0]).is_file()
