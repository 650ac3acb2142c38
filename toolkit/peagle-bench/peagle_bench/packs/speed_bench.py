"""Pack SPEED-Bench whole: all 880 prompts, or none.

NVIDIA may not distribute 494 of the 880 texts: the public rows have a placeholder instead, and NVIDIA's
script fetches the texts from their sources. Its output is read from a file. A file with placeholders, or with
fewer rows, is refused, since figures of a part of the benchmark are not comparable with published ones.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from peagle_bench.load import WorkItem
from peagle_bench.packs.judges import acceptance_by, answered, judge_answered
from peagle_bench.packs.pack import Judgement, Make, Observed, Pack, PackNotMeasured, PackWork
from peagle_bench.packs.texts import tokens_a_character
from peagle_bench.results.records import RequestRecord
from peagle_bench.verify.statistics import CheckVerdict, counted
from peagle_bench.workloads import Shape, make_item
from peagle_bench.workloads.prompt_files import Question, choose
from peagle_bench.workloads.public_datasets import (
    PREPARE_SPEED_BENCH,
    SPEED_BENCH_LICENSE,
    SPEED_BENCH_NAME,
    read_speed_bench,
)
from peagle_sm.core.errors import PeagleError

ROWS = 880
_PUBLIC = 386  #: rows with their text in the public data set
_ANSWER, _SHORT_ANSWER = 256, 32  #: tokens; of a chat model, and of the stand-in
_REPEATED = 0.01  #: of the prompts; more of them with a text that others have too are not prompts


def make(asked: Make) -> PackWork:
    """Make the requests of the prepared file; ``units`` is a sample, balanced over the categories.

    Raises:
        PackNotMeasured: no file, a file with placeholders, or with another number of rows.
    """
    if asked.file is None:
        raise PackNotMeasured(
            f"{ROWS - _PUBLIC} of the {ROWS} public rows are placeholders, so a prepared file is needed",
            next_step=PREPARE_SPEED_BENCH,
            data=True,
        )
    path = Path(asked.file)
    try:
        source = read_speed_bench("qualitative", path, fetch=_unfetched, cache=path.parent)
    except PeagleError as error:
        raise PackNotMeasured(
            error.message, next_step=error.next_step or PREPARE_SPEED_BENCH, data=True
        ) from error
    found = len(source.questions)
    if source.hidden:
        raise PackNotMeasured(
            f"{path.name}: {source.hidden} of {found + source.hidden} rows are placeholders",
            next_step=PREPARE_SPEED_BENCH,
            data=True,
        )
    if found != ROWS:
        raise PackNotMeasured(
            f"{path.name} has {found} rows; SPEED-Bench's qualitative split has {ROWS}",
            next_step=PREPARE_SPEED_BENCH,
            data=True,
        )
    answer = _SHORT_ANSWER if asked.model.stand_in else _ANSWER
    fitting = _fitting(source.questions, asked, answer)
    chosen = choose(fitting, min(asked.units or ROWS, len(fitting)), asked.seed)
    items = tuple(make_item(one, Shape(max_tokens=answer, temperature=0.0, api="chat"), {}) for one in chosen)
    notes = [f"{ROWS - len(fitting)} of {ROWS} prompts do not fit into the context"]
    notes = notes if len(fitting) < ROWS else []
    notes += [f"a sample of {len(items)} of {ROWS} prompts"] if len(items) < len(fitting) else []
    return PackWork(items, f"{path.name}, SHA-256 {source.sha256}", SPEED_BENCH_LICENSE, tuple(notes))


def _unfetched(url: str) -> bytes:
    raise AssertionError(f"the pack reads a file, and {url} was asked for")


def _fitting(questions: tuple[Question, ...], asked: Make, answer: int) -> list[Question]:
    """Return the prompts that fit, with the answers of all turns and a fifth to spare for the estimate."""
    rate = tokens_a_character(asked.model) * 1.2
    room = asked.model.context
    return [
        one for one in questions if sum(map(len, one.turns)) * rate + (answer + 16) * len(one.turns) <= room
    ]


def judge(observed: Observed) -> Judgement:
    """Judge that every prompt is one, and was answered; report acceptance by category."""
    own = answered(observed.requests)
    checks = {
        "prompts": judge_prompts(observed.work.items),
        "answered": judge_answered(observed.requests, observed.baseline_requests),
    }
    if observed.identity is not None:
        checks["identity"] = observed.identity
    return Judgement(checks, _figure(own))


def judge_prompts(items: tuple[WorkItem, ...]) -> CheckVerdict:
    """Judge whether the texts are prompts: a placeholder of any wording is the same in many rows."""
    texts = Counter(str(item.body["messages"]) for item in items)
    repeated = sum(count for count in texts.values() if count > 1)
    said = f"{len(items) - repeated} of {counted(len(items), 'prompt')} have a text of their own"
    power = f"detects placeholders in more than {_REPEATED:.0%} of the prompts, whatever their wording"
    examples = [f"{count} times: {text[:80]}" for text, count in texts.most_common(3) if count > 1]
    figures = {"prompts": float(len(items)), "repeated": float(repeated)}
    return CheckVerdict(repeated <= _REPEATED * len(items), said, power, figures, examples)


def _category(record: RequestRecord) -> str:
    return record.category or "none"


def _figure(own: list[RequestRecord]) -> str:
    found = sorted(acceptance_by(own, _category).items(), key=lambda one: one[1])
    if not found:
        return ""
    worst, best = found[0], found[-1]
    return f"acceptance {worst[1]:.2f} ({worst[0]}) to {best[1]:.2f} ({best[0]})"


PACK = Pack(
    name=SPEED_BENCH_NAME,
    shows="all 880 prompts of SPEED-Bench's qualitative split, in 11 categories",
    passes="all 880 rows have their text, every prompt is answered, and the answers are the target's own",
    finds="placeholder rows counted as prompts (494 of 880 in the public data set)",
    needs=(
        "the output of NVIDIA's prepare script (--workload-file)",
        "an arm without speculation, for identity",
    ),
    data=f"not shipped: Hugging Face nvidia/SPEED-Bench; {SPEED_BENCH_LICENSE}",
    stand_ins="only that the rows are read, refused and answered: the stand-in does not chat",
    make=make,
    judge=judge,
    takes_file=True,
)
