"""Pairs of engines that are made of recorded outputs: clean ones with the arithmetic's noise, and samples.

The outputs in recorded.npz are of two real engines (32 greedy answers, 40 samples). The program that wrote
them is in the history: `git show e4824d19:toolkit/peagle-bench/tests/bench/verify/record_fixture.py`.

At each position of a recorded answer the six likeliest tokens and their log-probabilities are known. An
engine reads them with an error of its own each time: Gaussian or heavy-tailed, and rounded to the grid that
logits of 16 to 32 have in bfloat16 (0.125), so that exact ties occur and fall to the lower token id, as
argmax takes them. After a flip the answer goes on along the recorded positions, with fresh errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from peagle_bench.verify.answers import Scored, TokenAnswer
from peagle_bench.verify.greedy import GreedyCase, ends_of
from peagle_bench.verify.statistics import NoiseFloor, floor_of

END = 0  #: the stand-in's end token
SAMPLED = 96  #: tokens asked for when the samples were recorded
LOGIT = 20.0  #: about the size of a large model's largest logit
Array = np.ndarray[Any, np.dtype[Any]]


@cache
def recorded() -> dict[str, list[Array]]:
    """``greedy_ids`` …, one array per answer."""
    with np.load(Path(__file__).parent / "recorded.npz") as file:
        arrays = {name: file[name] for name in file.files}
    by_name = {}
    for kind in ("greedy", "sampled"):
        cuts = np.cumsum(arrays[f"{kind}_lengths"].astype(int))[:-1]
        for name in ("ids", "logprobs", "top_ids", "top_logprobs"):
            by_name[f"{kind}_{name}"] = np.split(arrays[f"{kind}_{name}"], cuts)
    return by_name


@dataclass(frozen=True)
class Noise:
    """``sd`` in nats per logit; ``grid`` 0 for none; ``tails``: Student's t with 6 degrees of freedom."""

    sd: float = 0.0
    grid: float = 0.0
    tails: bool = False

    def read(self, rng: np.random.Generator, logprobs: Array, times: float = 1.0) -> Array:
        """One reading of [tokens, 6] log-probabilities, normalised again."""
        if self.sd == 0 and self.grid == 0:
            return logprobs.astype(float)
        error = (
            rng.standard_t(6, logprobs.shape) / 1.5**0.5 if self.tails else rng.normal(size=logprobs.shape)
        )
        logits = LOGIT + logprobs + times * self.sd * error
        if self.grid:
            logits = np.round(logits / self.grid) * self.grid
        logits = logits - LOGIT
        tail = np.maximum(0.0, 1 - np.exp(logprobs).sum(axis=1))
        result: Array = logits - np.log(np.exp(logits).sum(axis=1) + tail)[:, None]
        return result


#: From float32 on one kernel to bfloat16 logits: what the clean runs go through.
NOISES = (
    Noise(),
    Noise(sd=1e-6),
    Noise(sd=1e-4),
    Noise(sd=2e-3),
    Noise(sd=0.01),
    Noise(sd=0.02, tails=True),
    Noise(sd=0.05),
    Noise(sd=0.02, grid=0.0625),
    Noise(sd=0.02, grid=0.125),
    Noise(sd=0.05, grid=0.125, tails=True),
)


@dataclass(frozen=True)
class World:
    """What verify would have in hand of a pair of engines; ``picked`` are the recorded answers used."""

    cases: list[GreedyCase]
    floor: NoiseFloor
    ends: frozenset[int]
    picked: list[int]
    max_tokens: int


def clean_world(
    rng: np.random.Generator, noise: Noise, prompts: int = 48, tokens: int = 64, times: float = 1.0
) -> World:
    """A pair without a fault; the candidate's errors are ``times`` the baseline's (other kernels)."""
    known = len(recorded()["greedy_ids"])
    picked = [int(n) for n in rng.choice(known, size=prompts, replace=prompts > known)]
    runs = [_run(rng, noise, picked, tokens, factor) for factor in (1.0, 1.0, times)]
    cases = [GreedyCase(f"p{at}", *three) for at, three in enumerate(zip(*runs, strict=True))]
    floor = floor_of([case.first for case in cases], [case.repeat for case in cases])
    return World(cases, floor, ends_of(cases), picked, tokens)


def _run(
    rng: np.random.Generator, noise: Noise, picked: list[int], tokens: int, times: float
) -> list[Scored]:
    data = recorded()
    names = np.concatenate([data["greedy_top_ids"][n][:tokens] for n in picked])
    truth = np.concatenate([data["greedy_top_logprobs"][n][:tokens] for n in picked])
    order = np.argsort(names, axis=1, kind="stable")  # argmax then takes the lower id of equals
    names, truth = np.take_along_axis(names, order, 1), np.take_along_axis(truth, order, 1)
    written, seen = noise.read(rng, truth, times), noise.read(rng, truth)
    chosen = np.argmax(written, axis=1)
    ids = names[np.arange(len(names)), chosen]
    own, scored = _pairs(written, chosen), _pairs(seen, chosen)
    found, start = [], 0
    for n in picked:
        end = start + min(tokens, len(data["greedy_ids"][n]))
        part = slice(start, end)
        values = tuple(ids[part].tolist())
        reason = "length" if end - start == tokens else "stop"
        if reason == "stop":  # a flip at the very end would go on: here the answer still ends
            values = (*values[:-1], END)
        told, others = (tuple(v[part].tolist()) for v in own)
        answer = TokenAnswer("", values, reason, None, len(values), told, others)
        found.append(Scored(answer, *(tuple(v[part].tolist()) for v in scored)))
        start = end
    return found


def _pairs(reading: Array, chosen: Array) -> tuple[Array, Array]:
    """The chosen tokens' log-probabilities, and the best others'."""
    rows = np.arange(len(reading))
    rest = reading.copy()
    rest[rows, chosen] = -np.inf
    return reading[rows, chosen], rest.max(axis=1)


def samples(rng: np.random.Generator, temperature: float, top_p: float, times: int) -> list[Scored]:
    """Answers drawn anew at the recorded samples' positions; scored at temperature 1, as verify scores."""
    data = recorded()
    rows = []
    for _ in range(times):
        for truth in data["sampled_top_logprobs"]:
            weights = np.exp(tempered(truth, temperature, top_p))
            drawn = (rng.random((len(truth), 1)) > np.cumsum(weights, axis=1)).sum(axis=1)
            best, second = truth[:, 0].astype(float), truth[:, 1].astype(float)
            is_best = drawn == 0
            own = np.where(is_best, best, np.minimum(second, -1e-3 + best))
            other = np.where(is_best, second, best)
            ids = tuple((1 + drawn).tolist())
            answer = TokenAnswer("", ids, "length" if len(ids) == SAMPLED else "stop", None, len(ids))
            rows.append(Scored(answer, tuple(own.tolist()), tuple(other.tolist())))
    return rows


def tempered(truth: Array, temperature: float, top_p: float = 1.0) -> Array:
    """Log-probabilities of the six, another temperature or a nucleus given; the tail is spread over 2,042."""
    tail = np.maximum(1e-9, 1 - np.exp(truth).sum(axis=1, keepdims=True))
    whole = np.concatenate([truth, np.log(tail / 2042).repeat(32, axis=1)], axis=1)
    weight = np.concatenate([np.zeros(truth.shape[1]), np.full(32, np.log(2042 / 32))])
    logits = whole / temperature + weight
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    if top_p < 1:
        before = np.cumsum(shares, axis=1) - shares
        shares = np.where(before < top_p, shares, 0.0)
        shares /= shares.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore"):
        result: Array = np.log(shares[:, : truth.shape[1]])
    return result
