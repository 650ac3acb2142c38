"""Both engines at hand: asking, streaming and scoring, with who refused what kept apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from peagle_sm.core.errors import ServiceFault, SpecError, StreamError
from peagle_sm.measure.verify.answers import READ_LOGPROBS, SCORED_RANKS, Answer, Scored, Top, parse_scores
from peagle_sm.measure.verify.engines import Body, Engine, ask_all, ask_raw, stream_all

Side = Literal["baseline", "candidate"]
#: Whatever defaults the server takes from the model's generation_config: scoring knows none of them.
NEUTRAL: dict[str, Any] = {
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
GREEDY: dict[str, Any] = {"temperature": 0.0, **NEUTRAL}
SAMPLED: dict[str, Any] = {"temperature": 1.0, **NEUTRAL}


@dataclass(frozen=True)
class Prompt:
    """One prompt as the engine tokenised it."""

    id: str
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Options:
    """How much is asked. Every count is of prompts unless its name says tokens."""

    max_tokens: int = 256
    concurrency: int = 8
    samples: int = 128
    sample_tokens: int = 128
    features: int = 24  #: for logprobs, stop strings and streaming
    seeds: int = 48
    seeds_noisy: int = 400  #: where the noise floor is not exact: a few lost seeds must show beside the noise
    seed_tokens: int = 16
    parameter_samples: int = 16  #: for each sampling parameter
    contexts: int = 16  #: places at which the same next token is sampled again and again
    repeats: int = 128  #: at each of them
    feature_tokens: int = 64
    structured: int = 12
    structured_tokens: int = 512
    longest_tokens: int = 40_000
    seed: int = 0


class SideFailed(Exception):
    """One side refused a request as wrong (``refused``), or failed to answer it."""

    def __init__(self, side: Side, error: SpecError | ServiceFault | StreamError) -> None:
        super().__init__(str(error))
        self.side = side
        self.error = error
        self.refused = isinstance(error, SpecError)


@dataclass
class Lab:
    """The two engines and what has been scored so far; ``tick`` is called after each answer."""

    baseline: Engine
    candidate: Engine
    options: Options
    tick: Callable[[], None] = lambda: None
    _scores: dict[
        tuple[str, tuple[int, ...]], tuple[tuple[float, ...], tuple[float, ...], tuple[Top, ...]]
    ] = field(default_factory=dict)

    def _engine(self, side: Side) -> Engine:
        return self.baseline if side == "baseline" else self.candidate

    def ask(self, side: Side, bodies: Sequence[Body], at_once: int | None = None) -> list[Answer]:
        """Whole answers, in order.

        Raises:
            SideFailed: one was refused, or none came.
        """
        try:
            return ask_all(self._engine(side), bodies, at_once or self.options.concurrency, self.tick)
        except (SpecError, ServiceFault) as error:
            raise SideFailed(side, error) from error
        except ValueError as error:
            raise SideFailed(side, ServiceFault(f"{self._engine(side).name}: {error}")) from error

    def stream(self, side: Side, bodies: Sequence[Body]) -> list[Answer | StreamError]:
        """Streamed answers, in order; one that broke is its error."""
        try:
            return stream_all(self._engine(side), bodies, self.options.concurrency)
        except (SpecError, ServiceFault) as error:
            raise SideFailed(side, error) from error

    def prompts(self, items: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Prompt]:
        """The token ids of each body's prompt, as the baseline's own template and tokenizer make them.

        Raises:
            SideFailed: the baseline refuses one.
            ServiceFault: it does not return token ids (vLLM before 0.10.2).
        """
        kept = ("prompt", "messages", "tools", "chat_template_kwargs", "reasoning_effort")
        bodies = [
            {**{k: v for k, v in body.items() if k in kept}, "max_tokens": 1, "return_token_ids": True}
            for _, body in items
        ]
        try:
            documents = ask_raw(self.baseline, bodies, self.options.concurrency, self.tick)
        except (SpecError, ServiceFault) as error:
            raise SideFailed("baseline", error) from error
        found = []
        for (name, _), document in zip(items, documents, strict=True):
            ids = document.get("prompt_token_ids") or document["choices"][0].get("prompt_token_ids")
            if not ids:
                raise ServiceFault(
                    f"{self.baseline.name} returns no token ids, and verify compares by them",
                    next_step="it needs vLLM 0.10.2 or later (return_token_ids)",
                )
            found.append(Prompt(name, tuple(ids)))
        return found

    def greedy(self, side: Side, prompts: Sequence[Prompt], at_once: int, **more: Any) -> list[Answer]:
        """Greedy answers of ``options.max_tokens`` to prompts."""
        return self.ask(side, [greedy_body(p, self.options.max_tokens, **more) for p in prompts], at_once)

    def score(self, prompts: Sequence[Prompt], answers: Sequence[Answer]) -> list[Scored]:
        """Each answer as the baseline sees it; equal answers to one prompt are scored once.

        Raises:
            SideFailed: the baseline refuses (its --max-logprobs is below 5, for example).
        """
        pairs = list(zip(prompts, answers, strict=True))
        new = {(p.id, a.ids): p for p, a in pairs if a.ids and (p.id, a.ids) not in self._scores}
        bodies = [
            {"prompt": [*p.ids, *ids], "max_tokens": 1, "prompt_logprobs": SCORED_RANKS, **GREEDY}
            for (_, ids), p in new.items()
        ]
        try:
            documents = ask_raw(self.baseline, bodies, self.options.concurrency, self.tick)
            for (key, prompt), document in zip(new.items(), documents, strict=True):
                self._scores[key] = parse_scores(document, len(prompt.ids), key[1])
        except (SpecError, ServiceFault) as error:
            raise SideFailed("baseline", error) from error
        except (ValueError, KeyError) as error:
            raise SideFailed(
                "baseline", ServiceFault(f"{self.baseline.name} scores otherwise: {error}")
            ) from error
        return [Scored(a, *self._scores.get((p.id, a.ids), ((), (), ()))) for p, a in pairs]


def greedy_body(prompt: Prompt, max_tokens: int, **more: Any) -> dict[str, Any]:
    """A greedy completion of a prompt given by its token ids."""
    return {
        "prompt": list(prompt.ids),
        "max_tokens": max_tokens,
        "return_token_ids": True,
        **GREEDY,
        **more,
    }


#: Fields that make a completion report the likeliest tokens, told apart by id.
WITH_LOGPROBS: dict[str, Any] = {"logprobs": READ_LOGPROBS, "return_tokens_as_token_ids": True}
