"""Writes recorded.npz, the outputs that the simulations corrupt: run once, against real engines.

    python -m tests.bench.verify.record_fixture BASELINE CANDIDATE PORT

with both endpoints on the local SageMaker at PORT. Greedy answers and samples at temperature 1 come from
CANDIDATE; at each of their tokens BASELINE's likeliest tokens and their log-probabilities are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from peagle_bench.verify.answers import TokenAnswer
from peagle_bench.verify.engines import (
    GREEDY,
    SAMPLED,
    EndpointEngine,
    EnginePair,
    Options,
    TokenPrompt,
    ask_raw,
)
from peagle_bench.verify.run import load_prompts
from peagle_sm.aws.session.session import LocalTarget, make_session
from sagemaker_local.lifecycle import find_server

PROMPTS, SAMPLES, TOKENS, TOP = 32, 40, 96, 6
FILE = Path(__file__).parent / "recorded.npz"


def score(
    engines: EnginePair, prompts: Sequence[TokenPrompt], answers: Sequence[TokenAnswer]
) -> dict[str, Any]:
    """Arrays over all tokens: [tokens] and [tokens, TOP], the likeliest first; ``lengths`` is [answers]."""
    bodies = [
        {"prompt": [*p.ids, *a.ids], "max_tokens": 1, "prompt_logprobs": TOP, **GREEDY}
        for p, a in zip(prompts, answers, strict=True)
    ]
    rows, own = [], []
    for p, a, document in zip(prompts, answers, ask_raw(engines.baseline, bodies, 4), strict=True):
        entries = document["choices"][0]["prompt_logprobs"][len(p.ids) :]
        for token, entry in zip(a.ids, entries, strict=True):
            ranked = sorted((told["rank"], int(name), told["logprob"]) for name, told in entry.items())
            rows.append(ranked[:TOP])
            own.append((token, entry[str(token)]["logprob"]))
    return {
        "lengths": np.array([len(a.ids) for a in answers], np.int16),
        "ids": np.array([token for token, _ in own], np.int16),
        "logprobs": np.array([logprob for _, logprob in own], np.float32),
        "top_ids": np.array([[name for _, name, _ in row] for row in rows], np.int16),
        "top_logprobs": np.array([[logprob for *_, logprob in row] for row in rows], np.float32),
    }


def main(baseline: str, candidate: str, port: str) -> None:
    """Ask, score and write."""
    session = make_session(local=LocalTarget.from_status(find_server(int(port)).to_dict()))
    both = [EndpointEngine(session, name) for name in (baseline, candidate)]
    engines = EnginePair(both[0], both[1], Options(max_tokens=TOKENS, concurrency=4))
    prompts = engines.prompts(
        [(item.prompt_id, item.body) for item in load_prompts("humaneval", PROMPTS, seed=0).items]
    )
    greedy = engines.greedy("candidate", prompts, 4)
    requests = [prompts[n % PROMPTS] for n in range(SAMPLES)]
    common = {"max_tokens": TOKENS, "return_token_ids": True, **SAMPLED}
    samples = engines.ask("candidate", [{"prompt": list(p.ids), **common} for p in requests])
    arrays = {
        **{f"greedy_{name}": value for name, value in score(engines, prompts, greedy).items()},
        **{f"sampled_{name}": value for name, value in score(engines, requests, samples).items()},
    }
    np.savez_compressed(FILE, **arrays)
    print(f"{FILE.name}: {FILE.stat().st_size:,} bytes", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
