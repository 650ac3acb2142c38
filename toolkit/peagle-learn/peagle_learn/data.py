"""`learn data`: the target's own answers to your prompts, split by conversation, in the spec's bucket.

First everything that can be known without sending: prompts, repeats, split, price. After the confirmation
the endpoint answers; then the files are written here, and to S3 with a manifest, which is written last.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from peagle_bench.benchmark.endpoint_arm import Described, describe_endpoint
from peagle_bench.compare.measurement import SECONDS_A_TOKEN, UNDER_LOAD
from peagle_bench.dialogues import FEWEST_CONVERSATIONS
from peagle_bench.verify.engines import EndpointEngine
from peagle_bench.workloads import limit_of
from peagle_learn.core.conversations import (
    PromptGroup,
    Split,
    compared_texts,
    related,
    split,
)
from peagle_learn.core.prompts import TargetTexts
from peagle_learn.core.spec import LearnSpec
from peagle_learn.core.token_rows import Sampled, data_hash, row
from peagle_learn.prompts import Read, read_prompts, target_texts
from peagle_learn.sampling import (
    MARGIN,
    Journal,
    Sampling,
    SamplingEnd,
    SamplingLimits,
    Streams,
    TurnOff,
    WantedAnswer,
    refuse_without_price,
    turn_off_of,
    unused_answers,
)
from peagle_learn.self_written import LONGEST, missing, write_file_of, write_prompts
from peagle_learn.stored_data import (
    GENERAL,
    HELD_OUT,
    MANIFEST,
    SCHEMA,
    TRAINING,
    VALIDATION,
    channel_digest,
    data_uri,
    origin_of,
    set_uri,
    store,
)
from peagle_sm.aws.files import write_file
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage import s3
from peagle_sm.core.errors import Declined, NotFound, PlanRefused, SpecError
from peagle_sm.core.slice_values import slices_of_body
from peagle_sm.core.words import elapsed, when
from peagle_sm.service import status
from peagle_sm.service.heads.checking import Sources
from peagle_sm.service.inventory.listing import most_per_hour
from peagle_sm.service.progress import Event, Progress


@dataclass(frozen=True)
class SetFacts:
    """One set of the split: its size, its lengths in characters, and its slices."""

    name: str
    conversations: int
    prompts: int
    characters: tuple[int, int, int]  #: shortest, median and longest prompt
    slices: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class DataOffer:
    """What `learn data` would send and store; ``usd`` None: no price is known.

    ``to_write`` prompts are still to be written by the target; they count as ``to_ask``, and no set is drawn
    before they exist. ``answered`` prompts have an answer from an earlier run. ``seconds`` is a rough
    estimate at 10 ms a token. ``until`` is when the endpoint is turned off, since its ``ends`` ("lifetime" or
    "hours") end; ``ends_early`` is true if that is before the estimated end, so some prompts stay without an
    answer.
    """

    name: str
    endpoint: str
    sets: tuple[SetFacts, ...]
    repeats: int
    near_repeats: int
    like_general: int
    token_ids: int
    redacted: Mapping[str, int]
    to_ask: int
    answered: int
    most_tokens: int
    seconds: float
    usd: float | None
    usd_per_hour: float | None
    budget_usd: float | None
    until: datetime | None
    ends: str
    ends_early: bool
    uri: str
    notes: tuple[str, ...]
    to_write: int = 0

    @property
    def ending(self) -> str:
        """Return what ends first, and when: ``hours end 2026-11-20 19:00 UTC``."""
        return f"{self.ends} {'end' if self.ends == 'hours' else 'ends'} {when(self.until)}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types; times as ISO text."""
        document = asdict(self)
        document["until"] = None if self.until is None else self.until.isoformat()
        return document


@dataclass(frozen=True)
class DataResult:
    """The stored data: its hash, its address, rows and tokens of each file, and how sampling ended."""

    data: str
    uri: str
    folder: Path
    rows: Mapping[str, int]
    tokens: Mapping[str, int]
    answer_tokens: Mapping[str, int]
    end: SamplingEnd

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {**asdict(self), "folder": str(self.folder)}


@dataclass(frozen=True)
class DataPlan:
    """Everything that is known before the first request."""

    spec: LearnSpec
    split: Split
    read: Read
    described: Described
    vocab_size: int | None
    journal: Journal
    wanted: tuple[WantedAnswer, ...]
    offer: DataOffer


def plan_data(
    spec: LearnSpec,
    session: Session,
    work: Path,
    *,
    base: Path = Path(),
    sources: Sources | None = None,
    complete: bool = False,
) -> DataPlan:
    """Read, redact and split the prompts, and look at the endpoint; send and store nothing.

    Paths in the spec are relative to ``base``. ``complete``: the target writes no further prompts; those of
    ``self_written`` that exist are all. Otherwise, as long as some are missing, nothing is split.

    Raises:
        SpecError: no endpoint or no prompts are named, or the prompts do not fit the target.
        NotFound, ServiceFault: the endpoint or the bucket does not exist, or is not in service.
        PlanRefused: the endpoint is turned off before it could answer anything, or its price, by which the
            budget holds, is unknown.
    """
    data = spec.data
    if not data.prompts and not data.self_written:
        raise SpecError(
            "data.prompts is empty", next_step="Name files, folders or s3:// prefixes of prompts."
        )
    endpoint = need_endpoint(spec)
    opened = sources or Sources(lambda: session)
    texts, notes = target_texts(opened, spec.target.place, spec.target.revision)
    bucket, _ = s3.split_uri(spec.folder)
    if not s3.exists(session, bucket):
        raise NotFound(f"the bucket {bucket} does not exist", next_step=f"Create it: aws s3 mb s3://{bucket}")
    described = describe_endpoint(session, endpoint)
    origin = origin_of(session, endpoint, described.arm.component)
    journal = Journal.open(work / f"answers-{_settings_hash(spec, origin)}.jsonl")
    unused = unused_answers(journal)
    to_write = 0 if complete else missing(data.self_written, journal)
    read, divided = _read_here(
        spec, session, texts, base, write_file_of(data.self_written, journal, work), draw=not to_write
    )
    wanted = tuple(
        WantedAnswer(read.items[prompt.id], each.key, prompt.turns)
        for each in (*divided.held_out, *divided.train, *divided.general_train)
        for prompt in each.prompts
    )
    todo = [each for each in wanted if each.key not in journal.answers and each.key not in journal.left_out]
    tokens = sum((limit_of(each.item) or data.max_tokens) * max(1, len(each.turns)) for each in todo)
    tokens += to_write * (LONGEST + data.max_tokens)
    seconds = tokens * SECONDS_A_TOKEN * UNDER_LOAD / max(1, min(data.concurrency, len(todo) + to_write))
    summary = status(endpoint, session=session).summary
    # Many requests at once scale it out, and the budget pays for all instances.
    hourly = most_per_hour(summary.instance_bounds, described.arm.usd_per_hour, described.arm.instance_count)
    is_asking = bool(todo or to_write)
    if is_asking:
        refuse_without_price(data.budget_usd, hourly, endpoint)
    now, end = session.now(), turn_off_of(summary, session.now())
    if is_asking and end is not None and end.stops_at <= now and len(todo) == len(wanted):
        raise _too_late(endpoint, end, session)
    general = related(divided.general)
    offer = DataOffer(
        name=spec.name,
        endpoint=endpoint,
        sets=(
            _facts("before the split" if to_write else "training", divided.train),
            *([] if to_write else [_facts("held out", divided.held_out)]),
            *([_facts("general", general)] if general else []),
            *([_facts("general, trained", divided.general_train)] if divided.general_train else []),
        ),
        repeats=divided.repeats,
        near_repeats=divided.near_repeats,
        like_general=divided.like_general,
        token_ids=read.token_ids,
        redacted=read.redacted,
        to_ask=len(todo) + to_write,
        answered=len(wanted) - len(todo),
        most_tokens=tokens,
        seconds=seconds,
        usd=None if hourly is None else hourly * seconds / 3600,
        usd_per_hour=hourly,
        budget_usd=data.budget_usd,
        until=None if end is None else end.at,
        ends="" if end is None else end.ends,
        ends_early=is_asking and end is not None and now + timedelta(seconds=seconds) > end.stops_at,
        uri=data_uri(spec),
        notes=(
            *notes,
            *read.notes,
            *_few(divided.held_out, general),
            *([unused] if is_asking and unused else []),
        ),
        to_write=to_write,
    )
    return DataPlan(spec, divided, read, described, texts.vocab_size, journal, wanted, offer)


def _few(held_out: Sequence[PromptGroup], general: Sequence[PromptGroup]) -> list[str]:
    """Note the sets with too few conversations for a proof."""
    return [
        f"{name}: {len(groups):,} conversations; `peagle-sm learn prove` needs at least"
        f" {FEWEST_CONVERSATIONS}, so no head can be offered with this set. Add prompts of other"
        f" conversations to {field}, or {change}"
        for name, field, change, groups in (
            ("held out", "data.prompts", "raise data.held_out", held_out),
            ("general", "data.general", "lower data.general_trained", general),
        )
        if groups and len(groups) < FEWEST_CONVERSATIONS
    ]


def _too_late(endpoint: str, end: TurnOff, session: Session) -> PlanRefused:
    return PlanRefused(
        f"endpoint {endpoint} is turned off at {when(end.at)}, by its {end.ends}; sampling stops"
        f" {elapsed(MARGIN.total_seconds())} before, so no prompt would get an answer. Nothing was sent",
        next_step=f"Keep it on: `peagle-sm keep {endpoint} 2h{session.command_flags()}`, or run this again"
        " when it is on for longer.",
        details={"findings": []},
    )


def _read_here(
    spec: LearnSpec, session: Session, texts: TargetTexts, base: Path, written: Sequence[str], *, draw: bool
) -> tuple[Read, Split]:
    """Read, redact and split the prompts on this machine; ``written`` are files of the target's own.

    Without ``draw`` nothing is split, since some prompts do not exist yet.
    """
    data = spec.data
    if not data.prompts and not written:
        return Read((), {}, {}), Split((), ())
    read = read_prompts(
        (*data.prompts, *written),
        lambda: session,
        texts,
        max_tokens=data.max_tokens,
        what="data.prompts",
        base=base,
    )
    if not draw:
        everything = tuple(PromptGroup(each.id, (each,)) for each in read.prompts)
        return read, Split(everything, ())
    general: Read | None = None
    if data.general is not None:
        general = read_prompts(
            [data.general],
            lambda: session,
            texts,
            max_tokens=data.max_tokens,
            what="data.general",
            prefix="general/",
            base=base,
        )
    divided = split(
        read.prompts,
        data.held_out,
        data.seed,
        () if general is None else general.prompts,
        data.general_trained,
        data.limit,
    )
    if general is None:
        return read, divided
    whole = replace(
        read,
        items={**read.items, **general.items},
        redacted=dict(Counter(read.redacted) + Counter(general.redacted)),
        notes=(*read.notes, *general.notes),
    )
    return whole, divided


def need_endpoint(spec: LearnSpec) -> str:
    """Return the endpoint that serves the target.

    Raises:
        SpecError: learn.yaml has no endpoint.
    """
    if spec.endpoint is None:
        raise SpecError(
            "endpoint: found nothing; allowed: the name of an endpoint that serves the target",
            next_step="Deploy the target with `peagle-sm deploy`, and write `endpoint: NAME` into"
            " learn.yaml.",
        )
    return spec.endpoint


def need_general(is_there: bool) -> None:
    """Refuse a proof without general prompts.

    Raises:
        SpecError: there are none.
    """
    if not is_there:
        raise SpecError(
            "data.general: found nothing; a head is offered only if it is no worse on general prompts",
            next_step="Name a file of general prompts in data.general, and run `peagle-sm learn data` again.",
        )


def _settings_hash(spec: LearnSpec, origin: list[Any]) -> str:
    """Answers of another target, endpoint, account, region, local server or length are not these."""
    parts = [spec.target.model, spec.target.revision, spec.endpoint, spec.data.max_tokens, *origin]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def _facts(name: str, conversations: Iterable[PromptGroup]) -> SetFacts:
    every = list(conversations)
    prompts = [prompt for each in every for prompt in each.prompts]
    lengths = sorted(len(compared_texts(prompt)[0]) for prompt in prompts) or [0]
    slices: dict[str, Counter[str]] = {}
    for prompt in prompts:
        of_prompt = slices_of_body(prompt.body, prompt.labels)
        for dimension, value in of_prompt.items():
            slices.setdefault(dimension, Counter())[value] += 1
    counts = {name: dict(values.most_common()) for name, values in sorted(slices.items())}
    return SetFacts(
        name, len(every), len(prompts), (lengths[0], lengths[len(lengths) // 2], lengths[-1]), counts
    )


def make_data(
    plan: DataPlan,
    session: Session,
    work: Path,
    *,
    confirm: Callable[[DataOffer], bool],
    progress: Progress,
    base: Path = Path(),
    engine: Streams | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> DataResult:
    """Confirm, sample the answers, write the files here, and upload them; a repeated run continues.

    Before the answers, the target writes the prompts of ``self_written`` that are missing.

    Raises:
        Declined: ``confirm`` declined; nothing was sent or stored.
        SpecError, ServiceFault, StreamError: the endpoint refused or failed; what was answered is kept.
        PlanRefused: the budget, the lifetime or the hours ended before there was an answer for each set.
        PeagleError: S3 refused; the files are on this machine, and the next run uploads them.
    """
    spec, offer = plan.spec, plan.offer
    if not confirm(offer):
        raise Declined(
            "Nothing was sent or stored: it was not confirmed.", next_step="Run it again and confirm."
        )
    work.mkdir(parents=True, exist_ok=True)
    arm = plan.described.arm
    sampling = Sampling(
        engine=engine or EndpointEngine(session, arm.endpoint, arm.component),
        journal=plan.journal,
        limits=_limits(offer),
        concurrency=spec.data.concurrency,
        vocab_size=plan.vocab_size,
        progress=progress,
        now=session.now,
        clock=clock,
    )
    if offer.to_write:
        stopped = write_prompts(sampling, spec.data.self_written)
        if stopped is not None and not plan.journal.written:
            raise PlanRefused(
                f"the target wrote no prompt before {stopped}",
                next_step="Raise data.budget_usd, or keep the endpoint on with `peagle-sm keep`.",
                details={"findings": []},
            )
        plan = plan_data(spec, session, work, base=base, complete=True)
        sampling.journal = plan.journal
        lacking = missing(spec.data.self_written, plan.journal)
        if lacking:
            progress(
                Event("check", f"{lacking:,} prompts were not written; {stopped or 'too many were unfit'}")
            )
    end = sampling.run(plan.wanted)
    if end.stopped_by is not None:
        progress(Event("check", f"stopped at {end.stopped_by}: {end.waiting:,} prompts have no answer"))
    files, counts = _files(plan)
    digest = data_hash(files)
    for name, content in files.items():
        write_file(work / "data" / name, content, parents=True)
    text = json.dumps(_manifest(plan, session, digest, files, counts, end), indent=1, sort_keys=True)
    write_file(work / "data" / MANIFEST, text + "\n", parents=True)
    store(spec, session, digest, work / "data", files, progress)
    return DataResult(
        data=digest,
        uri=set_uri(spec, digest),
        folder=work / "data",
        rows={name: each.rows for name, each in counts.items()},
        tokens={name: each.tokens for name, each in counts.items()},
        answer_tokens={name: each.answer_tokens for name, each in counts.items()},
        end=end,
    )


def _limits(offer: DataOffer) -> SamplingLimits:
    until = None if offer.until is None else TurnOff(offer.until, offer.ends).stops_at
    return SamplingLimits(offer.usd_per_hour, offer.budget_usd, until, offer.ends)


@dataclass(frozen=True)
class _FileCounts:
    """What one training file has."""

    rows: int
    conversations: int
    tokens: int
    answer_tokens: int


def _files(plan: DataPlan) -> tuple[dict[str, bytes], dict[str, _FileCounts]]:
    """Return the files, and the counts of each training file."""
    answers, files, counts = plan.journal.answers, dict[str, bytes](), dict[str, _FileCounts]()
    by_key = {each.item.prompt_id: each.key for each in plan.wanted}
    learned_from = (*plan.split.train, *plan.split.general_train)
    for name, conversations in ((TRAINING, learned_from), (VALIDATION, plan.split.held_out)):
        turns: list[Sampled] = [
            replace(turn, conversation=each.key)
            for each in conversations
            for prompt in each.prompts
            for turn in answers.get(by_key[prompt.id], ())
        ]
        if not turns:
            raise PlanRefused(
                f"no prompt of {name} has an answer: the budget, or the endpoint's lifetime or hours are too"
                " short",
                next_step="Raise data.budget_usd, or keep the endpoint on with `peagle-sm keep`; answers so"
                " far are"
                " kept, and the next run continues.",
                details={"findings": []},
            )
        files[name] = "".join(row(turn) + "\n" for turn in turns).encode()
        learned = sum(len(turn.answer_ids) for turn in turns)
        read = sum(len(turn.prompt_ids) for turn in turns)
        count = len({turn.conversation for turn in turns})
        counts[name] = _FileCounts(len(turns), count, read + learned, learned)
    files[HELD_OUT] = _bodies(plan.split.held_out)
    if plan.split.general:
        files[GENERAL] = _bodies(related(plan.split.general))
    return files, counts


def _bodies(conversations: Iterable[PromptGroup]) -> bytes:
    """Return prompts as a workload: OpenAI bodies with the key of their conversation, one a line."""
    lines = []
    for prompt, key in (
        (prompt, conversation.key) for conversation in conversations for prompt in conversation.prompts
    ):
        line: dict[str, Any] = {"id": prompt.id, **prompt.body, "conversation": key}
        line |= {"category": prompt.category} if prompt.category else {}
        line |= {"labels": dict(prompt.labels)} if prompt.labels else {}
        lines.append(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
    return "".join(lines).encode("utf-8", "replace")


def _manifest(
    plan: DataPlan,
    session: Session,
    digest: str,
    files: Mapping[str, bytes],
    counts: Mapping[str, _FileCounts],
    end: SamplingEnd,
) -> dict[str, Any]:
    spec, offer = plan.spec, plan.offer
    return {
        "schema": SCHEMA,
        "data": digest,
        "name": spec.name,
        "made_at": session.now().isoformat(timespec="seconds"),
        "target": spec.target.model_dump(mode="json", exclude={"accept_eula"}),
        "endpoint": {"name": offer.endpoint, **plan.described.origin},
        "settings": spec.data.model_dump(mode="json"),
        "sources": dict(plan.read.sources),
        "sets": [asdict(each) for each in offer.sets],
        "left_out": {
            "repeats": offer.repeats,
            "near_repeats": offer.near_repeats,
            "like_general": offer.like_general,
            "token_ids": offer.token_ids,
            "refused_or_secret": end.left_out,
            "without_answer": end.waiting,
        },
        "redacted": dict(offer.redacted),
        "channel_sha256": channel_digest(TRAINING, files[TRAINING]),
        "files": {
            name: {
                "sha256": hashlib.sha256(content).hexdigest(),
                "size": len(content),
                "rows": counts[name].rows if name in counts else None,
                "conversations": counts[name].conversations if name in counts else None,
                "tokens": counts[name].tokens if name in counts else None,
            }
            for name, content in sorted(files.items())
        },
    }
