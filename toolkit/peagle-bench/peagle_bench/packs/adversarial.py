"""Pack "adversarial": text that a draft head guesses badly, and prompts that aim at the draft. Pure.

Every prompt is made from a seed; nothing is fetched, and no text of others is in it. Both endpoints answer
each prompt one after the other, in turns, so a busy machine slows both. The pack fails where the endpoint is
slower than plain decoding beyond doubt, and says by how much.
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from peagle_bench.compare.confidence_intervals import ratio
from peagle_bench.load import WorkItem
from peagle_bench.packs.judges import acceptance_by, answered, part_of, unsteady
from peagle_bench.packs.pack import Judgement, Make, Observed, Pack, PackWork
from peagle_bench.results.records import Interval, RequestRecord
from peagle_bench.verify.statistics import CheckVerdict, counted, undecided

#: Words that are common in their language; code switching mixes them. Written for this project.
_LANGUAGES: Mapping[str, tuple[str, ...]] = {
    "English": ("the", "water", "because", "quickly", "seven", "house", "never", "tomorrow"),
    "German": ("das", "Wasser", "weil", "schnell", "sieben", "Haus", "niemals", "übermorgen"),
    "Spanish": ("el", "agua", "porque", "rápido", "siete", "casa", "nunca", "mañana"),
    "Turkish": ("bu", "suyu", "çünkü", "hemen", "yedi", "ev", "asla", "bugün"),
    "Russian": ("эта", "вода", "потому", "быстро", "семь", "дом", "никогда", "завтра"),
    "Greek": ("το", "νερό", "γιατί", "γρήγορα", "επτά", "σπίτι", "ποτέ", "αύριο"),
    "Hindi": ("यह", "पानी", "क्योंकि", "जल्दी", "सात", "घर", "कभी", "कल"),
    "Chinese": ("这", "水", "因为", "快", "七", "房子", "从不", "明天"),
    "Swahili": ("hii", "maji", "kwa sababu", "haraka", "saba", "nyumba", "kamwe", "kesho"),
}
#: Letters of scripts that little training text has: name, first and last code point.
_SCRIPTS = (
    ("Cherokee", 0x13A0, 0x13F4),
    ("Ogham", 0x1681, 0x169A),
    ("Runic", 0x16A0, 0x16EA),
    ("Tifinagh", 0x2D30, 0x2D67),
    ("Georgian", 0x10D0, 0x10F0),
    ("Ethiopic", 0x1200, 0x1246),
    ("Khmer", 0x1780, 0x17A2),
    ("Glagolitic", 0x2C30, 0x2C5E),
)
MOST_STOPS = 4  #: stop strings of a request that vLLM 0.32 and the OpenAI API accept


Made = tuple[str, Mapping[str, Any]]


def _random_strings(rng: random.Random) -> Made:
    signs = [chr(code) for code in range(0x21, 0x7F)]
    lines = ["".join(rng.choices(signs, k=rng.randint(12, 24))) for _ in range(8)]
    return "Continue this list of passwords, each different:\n" + "\n".join(lines), {}


def _rare_scripts(rng: random.Random) -> Made:
    name, first, last = rng.choice(_SCRIPTS)
    words = ["".join(chr(rng.randint(first, last)) for _ in range(rng.randint(2, 8))) for _ in range(24)]
    return f"Continue this text in the {name} script:\n" + " ".join(words), {}


def _base64(rng: random.Random) -> Made:
    return "Continue this base64 text:\n" + base64.b64encode(rng.randbytes(180)).decode(), {}


def _code_switching(rng: random.Random) -> Made:
    words = [rng.choice(rng.choice(list(_LANGUAGES.values()))) for _ in range(40)]
    return "Continue this text, and change the language after each word:\n" + " ".join(words), {}


def _repetition_bait(rng: random.Random) -> Made:
    """A pattern that the draft learns to repeat, broken at each seventh place."""
    pattern = rng.sample(_LANGUAGES["English"], 3)
    words = [str(rng.randint(0, 999)) if at % 7 == 6 else pattern[at % 3] for at in range(56)]
    rule = "Continue this text. Each seventh word is a new number:\n"
    return rule + " ".join(words), {}


def _many_stops(rng: random.Random) -> Made:
    """Stop strings that hardly ever end an answer, and that the server looks for in every step."""
    signs = [chr(code) for code in range(0x21, 0x7F)]
    stops = ["".join(rng.choices(signs, k=rng.randint(6, 12))) for _ in range(MOST_STOPS)]
    task = f"Write a Python function that returns the {rng.choice(('largest', 'smallest', 'mean'))} of "
    return task + f"{rng.randint(3, 99)} numbers, with a docstring.", {"stop": stops}


_MAKERS: Mapping[str, Callable[[random.Random], Made]] = {
    "random-strings": _random_strings,
    "rare-scripts": _rare_scripts,
    "base64": _base64,
    "code-switching": _code_switching,
    "repetition-bait": _repetition_bait,
    "many-stop-strings": _many_stops,
}
KINDS = tuple(_MAKERS)


TOGETHER = "all-kinds"
FEWEST_PROMPTS = 6  #: of a kind with an interval


@dataclass(frozen=True)
class KindFigures:
    """Figures of one kind of prompt; the intervals of all kinds cover together in 95% of runs.

    ``speed_up`` is the ratio of output tokens per second to plain decoding. ``slower``: below 1 beyond doubt,
    that is at the pack's false alarm rate over all kinds. A true ratio below ``detected`` would be found.
    """

    kind: str
    prompts: int
    speed_up: Interval
    acceptance_length: float | None
    slower: bool
    detected: float


Row = tuple[float, float, float, float]  #: tokens and seconds of the arm, tokens and seconds of the baseline


def figures_of(
    rows: Mapping[str, Mapping[str, Row]], lengths: Mapping[str, float], alpha: float
) -> list[KindFigures]:
    """Compute the figures of each kind with enough prompts; ``rows`` has those of each kind by prompt.

    All kinds together are one more. Each is looked at once, so each look gets an equal share of ``alpha`` and
    of the 5% (Bonferroni).
    """
    enough = {kind: table for kind, table in rows.items() if len(table) >= FEWEST_PROMPTS}
    if len(enough) > 1:
        enough[TOGETHER] = {name: row for table in rows.values() for name, row in table.items()}
    by_kind = []
    for kind, table in enough.items():
        shown = ratio([table], _SIGNS, 1 - 0.05 / len(enough))
        # One side decides: only slowness is a fault.
        strict = ratio([table], _SIGNS, 1 - 2 * alpha / len(enough))
        detected = strict.value / strict.high
        by_kind.append(KindFigures(kind, len(table), shown, lengths.get(kind), strict.high < 1, detected))
    return by_kind


_SIGNS = (1, -1, -1, 1)


def rows_of(
    requests: Sequence[RequestRecord], baseline: Sequence[RequestRecord]
) -> dict[str, dict[str, Row]]:
    """Return tokens and seconds of the prompts that both answered, by kind."""
    theirs = {record.prompt_id: record for record in answered(baseline)}
    rows: dict[str, dict[str, Row]] = {}
    for mine in answered(requests):
        plain = theirs.get(mine.prompt_id)
        if plain is not None:
            row = (
                float(mine.output_tokens or 0),
                _seconds(mine),
                float(plain.output_tokens or 0),
                _seconds(plain),
            )
            rows.setdefault(part_of(mine), {})[mine.prompt_id] = row
    return rows


def _seconds(record: RequestRecord) -> float:
    return record.done_s - record.sent_s


def judge_speed(kinds: Sequence[KindFigures], alpha: float) -> CheckVerdict:
    """Judge whether speculation is slower than plain decoding for any kind of prompt, and by how much."""
    if not kinds:
        return undecided(f"no kind of prompt has {FEWEST_PROMPTS} prompts that both answered")
    figures: dict[str, float] = {"prompts": sum(each.prompts for each in kinds if each.kind != TOGETHER)}
    for each in kinds:
        figures[f"speed_up_{each.kind}"] = each.speed_up.value
        figures[f"speed_up_low_{each.kind}"] = each.speed_up.low
        figures[f"speed_up_high_{each.kind}"] = each.speed_up.high
        if each.acceptance_length is not None:
            figures[f"acceptance_length_{each.kind}"] = each.acceptance_length
    slower = [each for each in kinds if each.slower]
    power = (
        "detects each kind that is below "
        f"{min(each.detected for each in kinds):.2f} times plain decoding, in half of runs; false alarm rate "
        f"{alpha:g} over all {len(kinds)} looks"
    )
    if slower:
        summary = f"{counted(len(slower), 'kind')} of prompts slower than plain decoding: "
        summary += "; ".join(_words(each) for each in slower)
        return CheckVerdict(False, summary, power, figures, [_words(each) for each in slower])
    slowest = min(kinds, key=lambda each: each.speed_up.value)
    return CheckVerdict(True, f"no kind of prompt is slower; lowest: {_words(slowest)}", power, figures)


def _words(each: KindFigures) -> str:
    interval = f"{each.speed_up.value:.2f} [{each.speed_up.low:.2f}, {each.speed_up.high:.2f}]"
    accepted = "" if each.acceptance_length is None else f", acceptance length {each.acceptance_length:.2f}"
    return f"{each.kind} {interval} times plain decoding{accepted}"


UNITS = 8  #: prompts of each kind
#: Of an answer. The head reads the prompt, too, so a short answer is slower by that alone. With 64 tokens the
#: stand-in's prompts in mixed languages took as long as without speculation (1 of 42 clean runs failed).
MAX_TOKENS = 96


def make(settings: Make) -> PackWork:
    """Make the prompts of each kind, as chats."""
    items = []
    for number in range(settings.units or UNITS):
        for kind, maker in _MAKERS.items():
            text, fields = maker(random.Random(f"adversarial {settings.seed} {number} {kind}"))
            body = {"messages": [{"role": "user", "content": text}], "max_tokens": MAX_TOKENS, **fields}
            name = f"{number:03}/{kind}"
            items.append(WorkItem(name, {**body, "temperature": 0.0}, category=kind))
    return PackWork(tuple(items))


def judge(observed: Observed) -> Judgement:
    """Judge the speed of each kind of prompt."""
    lengths = acceptance_by(observed.requests, part_of)
    figures = figures_of(rows_of(observed.requests, observed.baseline_requests), lengths, observed.alpha)
    verdict = judge_speed(figures, observed.alpha)
    if (busy := unsteady(observed.baseline_requests)) is not None:
        return Judgement({"speed": undecided(busy, verdict.figures)})
    slowest = min(figures, key=lambda each: each.speed_up.value, default=None)
    return Judgement({"speed": verdict}, _words(slowest) if slowest else "")


PACK = Pack(
    name="adversarial",
    shows="text that a draft guesses badly, prompts that aim at the draft, many stop strings",
    passes=(
        "no kind of prompt is answered significantly slower than by plain decoding, and the answers are the"
        " target's own"
    ),
    finds="slowdown below plain decoding, by how much; answers that are not the target's own",
    needs=("an arm without speculation", "a context of 1,024 tokens or more"),
    make=make,
    judge=judge,
    least_context=1024,
)
