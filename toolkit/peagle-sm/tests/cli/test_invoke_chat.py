"""`peagle-sm invoke -p`: a chat, or a text to continue, by what the model can do and the user wants."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.local.serving import Server

pytestmark = pytest.mark.slow


def sent(peagle: Run, *words: str) -> str:
    """Run `invoke` with an engine that gives back what it was sent, which is no answer."""
    return str(peagle("invoke", *words, "--no-stream").stderr)


def test_a_prompt_is_a_chat_unless_the_user_wants_a_text(server: Server, peagle: Run) -> None:
    name = server.deploy()
    assert "messages" in sent(peagle, name, "-p", "Why?")
    assert "prompt" in sent(peagle, name, "-p", "def f(", "--complete")
    refused = peagle("invoke", name, "--complete", "--body", "-", stdin=json.dumps({"prompt": "x"}))
    assert (refused.exit_code, "--complete" in refused.stderr) == (2, True)


def test_the_stand_in_continues_a_text(peagle: Run, spec: Callable[..., str]) -> None:
    peagle("deploy", spec("texts", SCRIPT_INVOKE="plain"), "--unguarded", "--yes")
    assert "messages" not in sent(peagle, "texts", "-p", "def f():")


@pytest.mark.parametrize("way", [(), ("--no-stream",), ("--format", "json")])
def test_a_model_without_a_chat_template_continues_the_prompt(
    server: Server, peagle: Run, way: tuple[str, ...]
) -> None:
    name = server.deploy(SCRIPT_INVOKE="openai", SCRIPT_TEMPLATE="none", SCRIPT_CHUNKS="2")
    result = peagle("invoke", name, "-p", "Why?", *way)
    assert result.exit_code == 0, result.stderr
    text = json.loads(result.stdout)["text"] if "json" in way else result.stdout
    assert text.rstrip("\n") == "token0 token1 "
    assert "no chat template" in result.stderr
    # A conversation cannot become a text.
    refused = peagle("chat", name, stdin="Why?\n")
    assert (refused.exit_code, "peagle-sm invoke NAME -p" in refused.stderr) == (2, True)


def test_an_instruct_model_has_its_own_name_and_gets_a_question_to_try(
    peagle: Run, spec: Callable[..., str]
) -> None:
    path = Path(spec("smol", SCRIPT_INVOKE="openai"))
    path.write_text(path.read_text().replace("tiny-code", "smollm2-135m-instruct\nspeculation: {mode: none}"))
    deployed = peagle("deploy", str(path), "--unguarded", "--yes")
    assert deployed.exit_code == 0, deployed.stderr
    assert "weights      SmolLM2-135M-Instruct on a CPU: " in deployed.stdout
    assert "peagle-sm invoke smol -p 'How do I " in deployed.stdout
    shown = json.loads(peagle("invoke", "smol", "-p", "Why?", "--format", "json").stdout)
    assert (shown["stand_in_weights"], shown["figures_of"]) == (False, "SmolLM2-135M-Instruct on a CPU")
    assert shown["text"].startswith("token0")
