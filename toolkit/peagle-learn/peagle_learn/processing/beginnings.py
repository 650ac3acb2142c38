"""What is wrong with the prompts, found before a job is paid for: the beginning of some files, read as it is.

Of up to `SAMPLED_FILES` files of each set the first megabyte is read by the code of the first job, without
its redaction. What lies behind that, only the jobs find.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from peagle_bench.workloads import load_workload
from peagle_bench.workloads.recorded import begins_as_record
from peagle_learn.core.conversations import LearnPrompt, split_prompts
from peagle_learn.core.processing.lines import GENERAL, PROMPTS
from peagle_learn.core.prompts import TargetTexts, is_token_ids, refuse_unfit
from peagle_learn.core.spec import LearnSpec
from peagle_learn.prompts import turns_of
from peagle_learn.stored_data import BEGINNING_BYTES, SAMPLED_FILES, spread
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.s3 import read_range
from peagle_sm.core.errors import CredentialsError, SpecError
from peagle_sm.core.words import Finding, error_finding

_GZIP = b"\x1f\x8b"
_SPLIT_BYTES = 1_000_000  #: of all prompts, so few that a plan can split them: 1.5 s


@dataclass(frozen=True)
class PromptFile:
    """One file of a source: its set, and its place in S3."""

    of: str
    bucket: str
    key: str
    size: int

    @property
    def uri(self) -> str:
        """Its address."""
        return f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True)
class Sample:
    """The prompts of the beginnings of some files; ``whole``: of all files, to their ends."""

    prompts: tuple[LearnPrompt, ...]
    files: int
    whole: bool


def check_beginnings(
    session: Session, files: Sequence[PromptFile], spec: LearnSpec, target: TargetTexts
) -> tuple[tuple[Finding, ...], str]:
    """Return what is wrong with the beginnings of the files, and what was checked.

    Who may not read them checks nothing: the jobs read with their own role.

    Raises:
        NotFound, ServiceFault: a file is gone, or S3 does not answer.
    """
    samples: dict[str, Sample] = {}
    doubts: list[Finding] = []
    try:
        for of in (PROMPTS, GENERAL):
            own = [each for each in files if each.of == of]
            if own:
                samples[of] = _sample(session, own)
                doubts += _refuse(samples[of], target, "data.prompts" if of == PROMPTS else "data.general")
        if all(each.whole for each in samples.values()) and sum(each.size for each in files) <= _SPLIT_BYTES:
            data, general = spec.data, samples.get(GENERAL)
            split_prompts(
                [each for each in samples[PROMPTS].prompts if not is_token_ids(each)],
                [each for each in general.prompts if not is_token_ids(each)] if general else (),
                held_out=data.held_out,
                general_trained=data.general_trained,
                limit=data.limit,
                seed=data.seed,
            )
    except SpecError as error:
        return (*doubts, error_finding("data", error.message, error.next_step or "")), ""
    except CredentialsError as error:
        return tuple(doubts), f"not checked, since you may not read the prompts: {error.message}"
    count = sum(len(each.prompts) for each in samples.values())
    read = sum(each.files for each in samples.values())
    rest = "" if all(each.whole for each in samples.values()) else "; the jobs check the rest"
    told = f"checked: {count:,} prompts at the beginning of {read:,} of {len(files):,} files{rest}"
    return tuple(doubts), told


def _refuse(sample: Sample, target: TargetTexts, what: str) -> tuple[Finding, ...]:
    """Refuse prompts as the second job would, where the beginning shows that it will; return warnings.

    Raises:
        SpecError: there are none, or they do not fit the target.
    """
    kept = [each for each in sample.prompts if not is_token_ids(each)]
    if not kept and not sample.whole:
        return ()
    if not kept and sample.prompts:
        raise SpecError(
            f"{what}: all {len(sample.prompts):,} prompts are token ids, in which secrets cannot be found",
            next_step="Give the prompts as text or as messages.",
        )
    return refuse_unfit(kept, target, what, is_whole=sample.whole)


def _sample(session: Session, files: Sequence[PromptFile]) -> Sample:
    by_uri = {each.uri: each for each in files}
    chosen = spread(list(by_uri), SAMPLED_FILES)
    prompts: list[LearnPrompt] = []
    whole = len(chosen) == len(by_uri)
    with tempfile.TemporaryDirectory() as folder:
        for uri in chosen:
            found, ends = _read(session, by_uri[uri], Path(folder) / "prompts.jsonl")
            prompts += found
            whole = whole and ends
    return Sample(tuple(prompts), len(chosen), whole)


def _read(session: Session, file: PromptFile, path: Path) -> tuple[list[LearnPrompt], bool]:
    """Return the prompts at a file's beginning, and whether that is all of it.

    Raises:
        SpecError: it has request bodies, and a line is damaged.
    """
    length = min(file.size, BEGINNING_BYTES)
    content = read_range(session, file.bucket, file.key, 0, length) if length else b""
    ends = length == file.size
    if content.startswith(_GZIP):
        content, ends = _unpacked(content, ends)
    if not ends:
        content = content[: content.rfind(b"\n") + 1]
    if not content.strip() or (not ends and content.lstrip().startswith(b"[")):
        return [], ends  # of a JSON array only the whole can be read
    path.write_bytes(content)
    recorded = begins_as_record(path)
    try:
        items = load_workload(str(path), default_max_tokens=None, session=lambda: session).items
    except SpecError as error:
        if recorded:  # of recorded traffic the job notes what it cannot read
            return [], ends
        raise SpecError(error.message.replace(str(path), file.uri), next_step=error.next_step) from None
    found = [LearnPrompt(f"{file.uri}/{each.prompt_id}", each.body, turns=turns_of(each)) for each in items]
    return found, ends


def _unpacked(content: bytes, ends: bool) -> tuple[bytes, bool]:
    """Return the beginning of a packed file; one that is small stays packed, and damage is told."""
    stream = zlib.decompressobj(wbits=31)
    try:
        plain = stream.decompress(content, BEGINNING_BYTES)
    except zlib.error:
        return content if ends else b"", ends
    if not ends or stream.unconsumed_tail:
        return plain, False
    return (plain if stream.eof and not stream.unused_data else content), True
