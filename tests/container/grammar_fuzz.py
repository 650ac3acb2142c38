"""Compile, in the engine's own xgrammar, every generated grammar that passes the gate, and measure its cost.

``python -m tests.container.grammar_fuzz --grammars 10000 --seed 1`` in the engine's Python. It compiles in
other processes, so that a grammar that ends one is a result. CPU seconds are of the parsing (in vLLM: in the
API server) and of the compilation (in the engine); a step is one mask of the vocabulary. It prints one JSON
object; "above" must be empty.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import xgrammar
from transformers import AutoTokenizer
from vllm.v1.structured_output.utils import choice_as_grammar

from peagle_gate.limits import judged
from peagle_gate.startup import Limits
from tests.container.grammar_bodies import Grammars

ROOT = Path(__file__).parents[2]
MOST_CPU_S = 1.0
_IN_A_PROCESS = 50  # grammars
_STEPS = 48  # masks for each grammar
_GIVEN_UP_S = 8  # CPU seconds after which a process is ended


@dataclass(frozen=True)
class Entry:
    """Grammar to measure: its number or file, its field of ``structured_outputs`` and its value."""

    number: int | str
    kind: str
    value: Any


def tokenizer_info() -> Any:
    """Return the vocabulary of the local target (2,048 tokens)."""
    weights = ROOT / "toolkit/sagemaker-local/sagemaker_local/weights/target"
    return xgrammar.TokenizerInfo.from_huggingface(AutoTokenizer.from_pretrained(weights))


def measure(entries: Sequence[Entry], tokens: Any) -> Iterator[dict[str, Any]]:
    """Yield the CPU seconds of each grammar, and the signal that ended its process, if any.

    One process compiles them in turn. A grammar that ends it, or takes too long, ends only that process; the
    next one goes on behind it.
    """
    at = 0
    while at < len(entries):
        results, status = _in_a_process(entries[at:], tokens)
        if os.WIFSIGNALED(status):
            results[-1]["signal"] = signal.Signals(os.WTERMSIG(status)).name
        for result in results:
            yield {**result, "cpu_s": result["parse_s"] + result["compile_s"]}
        at += len(results)


def _in_a_process(entries: Sequence[Entry], tokens: Any) -> tuple[list[dict[str, Any]], int]:
    """Return the results of grammars up to the one that ends the process, and the process's status."""
    readable, writable = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(readable)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for entry in entries:
            _write(writable, number=entry.number)
            resource.setrlimit(resource.RLIMIT_CPU, (int(_cpu_s()) + _GIVEN_UP_S, resource.RLIM_INFINITY))
            try:
                _compile(entry.kind, entry.value, tokens, writable, random.Random(entry.number))
            except Exception as error:
                _write(writable, error=f"{type(error).__name__}: {error}"[:200])
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as lines:
        figures = [json.loads(line) for line in lines]
    results: list[dict[str, Any]] = []
    for figure in figures:
        if "number" in figure:
            results.append({"parse_s": 0.0, "compile_s": 0.0, "step_s": 0.0})
        results[-1].update(figure)
    return results, os.waitpid(process, 0)[1]


def _compile(kind: str, value: Any, tokens: Any, out: int, chance: random.Random) -> None:
    if kind == "choice":
        kind, value = "grammar", choice_as_grammar(value)
    names = {
        "json": ("from_json_schema", "compile_json_schema"),
        "regex": ("from_regex", "compile_regex"),
        "grammar": ("from_ebnf", "compile_grammar"),
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
    generator = Grammars(random.Random(seed))
    counts = Counter[str](grammars=grammars)
    passed: list[Entry] = []
    above: list[dict[str, Any]] = []
    slowest = {"cpu_s": 0.0, "parse_s": 0.0, "compile_s": 0.0, "step_s": 0.0}
    tokens = tokenizer_info()
    for number in range(grammars):
        entry = Entry(number, *generator.grammar())
        if passes(entry):
            passed.append(entry)
            counts.update(["passed", f"passed {entry.kind}"])
        if len(passed) == _IN_A_PROCESS or number == grammars - 1:
            for each, result in zip(passed, measure(passed, tokens), strict=True):
                counts["refused by the engine"] += "error" in result
                if "signal" not in result and result["cpu_s"] > MOST_CPU_S:
                    result = min(_again(each, tokens), key=lambda figures: figures["cpu_s"])
                slowest = {name: max(most, round(result[name], 3)) for name, most in slowest.items()}
                if "signal" in result or max(result["cpu_s"], result["step_s"]) > MOST_CPU_S:
                    above.append({**result, each.kind: json.dumps(each.value)[:2000]})
                    print(json.dumps(above[-1])[:700], file=sys.stderr, flush=True)
            passed = []
    engine = {"xgrammar": version("xgrammar"), "vllm": version("vllm"), "cpu": processor()}
    return {
        **counts,
        "above_count": len(above),
        "above": above[:20],
        "slowest": slowest,
        "seed": seed,
    } | engine


def _again(entry: Entry, tokens: Any) -> list[dict[str, Any]]:
    """Return three more measurements: a loaded machine adds to the CPU seconds of a process."""
    return [next(measure([entry], tokens)) for _ in range(3)]


def passes(entry: Entry) -> bool:
    """Return whether a grammar passes the gate."""
    body = {"messages": [{"role": "user", "content": "x"}], "structured_outputs": {entry.kind: entry.value}}
    return judged(json.dumps(body).encode(), Limits())[1] is None


def processor() -> str:
    """Return the name of this machine's processor."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    models = [line.partition(": ")[2] for line in lines if line.startswith("model\t")]
    return f"{names[0]}, model {models[0]}" if names and models else "unknown"


def real_schemas() -> list[str]:
    """Return the real schemas that xgrammar refuses, or that cost it more than a second of CPU."""
    lines = Path(__file__).with_name("real_schemas.jsonl").read_text(encoding="utf-8").splitlines()
    schemas = [json.loads(line) for line in lines]
    entries = [Entry(schema["file"], "json", schema["schema"]) for schema in schemas]
    return [
        str(result["number"])
        for result in measure(entries, tokenizer_info())
        if result.keys() & {"error", "signal"} or result["cpu_s"] > MOST_CPU_S
    ]


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
