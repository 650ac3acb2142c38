"""Compile, in the engine's own xgrammar, every generated grammar that passes the gate, and measure its cost.

``python -m tests.container.grammar_fuzz --grammars 10000 --seed 1`` in the engine's Python. Each grammar is
compiled in a process of its own, so that one that ends it is a result. CPU seconds are of the parsing (in
vLLM: in the API server) and of the compilation (in the engine); a step is one mask of the vocabulary. It
prints one JSON object; "above" must be empty.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import resource
import signal
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import xgrammar
from transformers import AutoTokenizer
from vllm.v1.structured_output.utils import choice_as_grammar

from peagle_gate.limits import judge
from peagle_gate.startup import Limits
from tests.container.grammar_bodies import Grammars

ROOT = Path(__file__).parents[2]
MOST_CPU_S = 1.0
_STEPS = 48  # masks for each grammar
_GIVEN_UP_S = 8  # CPU seconds after which a process is ended


def tokenizer_info() -> Any:
    """Return the vocabulary of the local target (2,048 tokens)."""
    weights = ROOT / "toolkit" / "sagemaker_local" / "weights" / "target"
    return xgrammar.TokenizerInfo.from_huggingface(AutoTokenizer.from_pretrained(weights))


def measure(kind: str, value: Any, tokens: Any, seed: int = 0) -> dict[str, Any]:
    """Return the CPU seconds of a grammar in a process of its own, and the signal that ended it, if any."""
    readable, writable = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(readable)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        resource.setrlimit(resource.RLIMIT_CPU, (_GIVEN_UP_S, _GIVEN_UP_S + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            _compile(kind, value, tokens, writable, random.Random(seed))
        except Exception as error:
            _write(writable, error=f"{type(error).__name__}: {error}"[:200])
        os._exit(0)
    os.close(writable)
    content = b""
    while part := os.read(readable, 65_536):
        content += part
    os.close(readable)
    _, status, used = os.wait4(process, 0)
    result: dict[str, Any] = {"parse_s": 0.0, "compile_s": 0.0, "step_s": 0.0}
    for line in content.decode().splitlines():
        result.update(json.loads(line))
    if os.WIFSIGNALED(status):
        result["signal"] = signal.Signals(os.WTERMSIG(status)).name
    return {**result, "cpu_s": used.ru_utime + used.ru_stime, "memory_mib": used.ru_maxrss // 1024}


def _compile(kind: str, value: Any, tokens: Any, out: int, chance: random.Random) -> None:
    if kind == "choice":
        kind, value = "grammar", choice_as_grammar(value)
    names = {
        "json": ("from_json_schema", "compile_json_schema"),
        "regex": ("from_regex", "compile_regex"),
        "grammar": ("from_ebnf", "compile_grammar"),
        "structural_tag": ("from_structural_tag", "compile_structural_tag"),
    }
    parse, compile_ = names[kind]
    text = value if isinstance(value, str) else json.dumps(value)
    started = _cpu_s()
    getattr(xgrammar.Grammar, parse)(text)
    parsed = _cpu_s()
    _write(out, parse_s=parsed - started)
    grammar = getattr(xgrammar.GrammarCompiler(tokens, max_threads=8), compile_)(text)
    _write(out, compile_s=_cpu_s() - parsed)
    matcher = xgrammar.GrammarMatcher(grammar, max_rollback_tokens=8)
    mask = xgrammar.allocate_token_bitmask(1, tokens.vocab_size)
    stops, slowest = set(matcher.stop_token_ids), 0.0
    for _ in range(_STEPS):
        started = _cpu_s()
        matcher.fill_next_token_bitmask(mask)
        slowest = max(slowest, _cpu_s() - started)
        bits = np.unpackbits(mask.numpy().view(np.uint8), bitorder="little")[: tokens.vocab_size]
        allowed = [token for token in np.nonzero(bits)[0].tolist() if token not in stops]
        if not allowed:
            break
        started = _cpu_s()
        matcher.accept_token(chance.choice(allowed))
        slowest = max(slowest, _cpu_s() - started)
        _write(out, step_s=slowest)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _write(out: int, **figures: Any) -> None:
    os.write(out, (json.dumps(figures) + "\n").encode())


def campaign(grammars: int, seed: int) -> dict[str, Any]:
    """Measure each of ``grammars`` generated grammars that passes the gate; the same seed makes the same."""
    tokens, made = tokenizer_info(), Grammars(random.Random(seed))
    counts = Counter[str]()
    above: list[dict[str, Any]] = []
    slowest = {"parse_s": 0.0, "compile_s": 0.0, "step_s": 0.0, "memory_mib": 0}
    for number in range(grammars):
        kind, value = made.grammar()
        body = {"messages": [{"role": "user", "content": "x"}], "structured_outputs": {kind: value}}
        counts["grammars"] += 1
        if judge(json.dumps(body).encode(), Limits()) is not None:
            continue
        counts["passed"] += 1
        counts[f"passed {kind}"] += 1
        found = measure(kind, value, tokens, number)
        counts["refused by the engine"] += "error" in found
        slowest = {name: max(most, round(found[name], 3)) for name, most in slowest.items()}
        if (
            "signal" in found
            or found["parse_s"] + found["compile_s"] > MOST_CPU_S
            or found["step_s"] > MOST_CPU_S
        ):
            above.append({**found, "number": number, kind: json.dumps(value)[:2000]})
            print(json.dumps(above[-1])[:700], file=sys.stderr, flush=True)
    return {**counts, "above_count": len(above), "above": above[:20], "slowest": slowest, "seed": seed}


def real_schemas() -> list[str]:
    """Return the real schemas that xgrammar refuses, or that cost it more than a second of CPU."""
    tokens, failed = tokenizer_info(), []
    for line in Path(__file__).with_name("real_schemas.jsonl").read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        found = measure("json", entry["schema"], tokens)
        if found.keys() & {"error", "signal"} or found["parse_s"] + found["compile_s"] > MOST_CPU_S:
            failed.append(entry["file"])
    return failed


def main() -> None:
    """Run a campaign and print its result."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser()
    parser.add_argument("--grammars", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    result = {**campaign(given.grammars, given.seed), "real_schemas_failed": real_schemas()}
    print(json.dumps(result))
    sys.exit(1 if result["above"] or result["real_schemas_failed"] else 0)


if __name__ == "__main__":
    main()
