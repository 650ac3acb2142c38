"""Prompts of given lengths: random token ids in, a fixed number of tokens out. Pure."""

from __future__ import annotations

import random
import re

from peagle_sm.core.errors import SpecError
from peagle_sm.measure.workloads.questions import Question, Source

#: Ids that are ordinary tokens in all tokenizers of the catalogue (control tokens lie below or far above).
_IDS = range(1000, 2000)
_COUNT = 256
_FORM = re.compile(r"(\d+)(?:-(\d+))?/(\d+)")


def make_synthetic(form: str, *, seed: int, count: int | None) -> Source:
    """Prompts as ``form`` says: ``1024/128`` is 1,024 tokens in and 128 out, ``512-2048/128`` a range in.

    The ids are random, so what a model writes after them is no measure of acceptance on real text; the
    output's length is forced with ``ignore_eos``. ``count`` is 256 unless given.

    Raises:
        SpecError: the form is not one of these.
    """
    found = _FORM.fullmatch(form)
    low, high, out = (int(found[1]), int(found[2] or found[1]), int(found[3])) if found else (0, 0, 0)
    if not 1 <= low <= high or out < 1:
        raise SpecError(
            f"synthetic:{form}: not a pair of lengths",
            next_step="write synthetic:IN/OUT in tokens, for example synthetic:1024/128 or"
            " synthetic:512-2048/128",
        )
    shuffler = random.Random(f"{seed}/{form}")
    questions = tuple(
        Question(
            f"synthetic/{number:05}",
            prompt=tuple(shuffler.choices(_IDS, k=shuffler.randint(low, high))),
            category=None,
        )
        for number in range(_COUNT if count is None else count)
    )
    return Source(
        name=f"synthetic:{form}",
        questions=questions,
        origin=f"made of random token ids, seed {seed}",
        sha256=None,
        license=None,
        notes=("random tokens: acceptance on them says nothing of real text, and lengths are forced",),
        parameters={"max_tokens": out, "ignore_eos": True},
    )
