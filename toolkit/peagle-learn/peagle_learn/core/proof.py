"""A head's proof: what was measured, whether it may be offered, and for what it holds. Pure.

`decide` is the only place that offers a head. What is missing counts against it: an interval that was not
measured is not a gain.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from peagle_bench.dialogues import FEWEST_CONVERSATIONS
from peagle_sm.core.errors import SpecError
from peagle_sm.core.words import first_fault

SCHEMA = "peagle-sm/learn-proof/1"
FIRST_LOOK = 16  #: prompts before the first look whether a measurement can end early; then at 32, 64, ...
SURE = 0.999
"""Confidence of the interval by which a measurement ends early. Ending early can only refuse, so it causes no
false offer; how often it refuses a better head is simulated in tests/learn/test_early_end.py."""


@dataclass(frozen=True)
class Ratio:
    """The candidate's figure over that of the serving head, with its confidence interval."""

    value: float
    low: float
    high: float

    @property
    def is_sound(self) -> bool:
        """Whether the three are finite, positive and in order."""
        every = (self.low, self.value, self.high)
        return all(math.isfinite(each) and each > 0 for each in every) and self.low <= self.value <= self.high


@dataclass(frozen=True)
class SliceEvidence:
    """What was measured on one slice of a set, to look at: the decision does not read it.

    All intervals of a ratio cover together in 95% of proofs; ``confidence`` is that of each alone. A ratio is
    None if too few prompts are in the slice.
    """

    dimension: str
    value: str
    prompts: int
    acceptance: Ratio | None
    speed: Ratio | None
    confidence: float
    serving_length: float | None = None
    candidate_length: float | None = None

    @property
    def is_worse(self) -> bool:
        """Whether the candidate's acceptance is lower here, or its speed significantly."""
        lower = self.acceptance is not None and self.acceptance.value < 1
        return lower or (self.speed is not None and self.speed.high < 1)


@dataclass(frozen=True)
class SetEvidence:
    """What was measured on one set of prompts; None where it was not.

    Lengths are acceptance lengths: tokens for each pass of the target. ``failed`` requests are the
    candidate's, ``serving_failed`` those of the serving head: either is left out, and failures are not
    random. ``identical`` of ``compared`` answers equal those of the serving head.
    """

    prompts: int
    acceptance: Ratio | None
    speed: Ratio | None
    serving_length: float | None = None
    candidate_length: float | None = None
    failed: int = 0
    identical: int | None = None
    compared: int | None = None
    slices: tuple[SliceEvidence, ...] = ()
    conversations: int | None = None  #: of the prompts, and what intervals are over; None: each is one
    serving_failed: int = 0


@dataclass(frozen=True)
class ProofCheck:
    """One check of `heads check` or `verify`; ``passed`` None: it could not decide."""

    name: str
    passed: bool | None
    summary: str = ""


@dataclass(frozen=True)
class ProofEvidence:
    """Everything that the decision is made from.

    ``head_faults`` are errors of `heads check`; with one, nothing else was measured. ``canary_fault`` is why
    the gate's canary kept the candidate from serving. ``hopeless`` is the acceptance ratio, with an interval
    of `SURE`, for which the measurement ended early. ``long_context`` is a set of long prompts.
    ``trained_apart``: the head was trained on the training part of the same set as the prompts.
    ``other_requests``: requests of others that the serving head answered meanwhile, for each one of the
    proof. Each is None if it does not apply, was not measured or is not known.
    """

    head_faults: tuple[str, ...] = ()
    held_out: SetEvidence | None = None
    general: SetEvidence | None = None
    long_context: SetEvidence | None = None
    identity: tuple[ProofCheck, ...] = ()
    canary_fault: str | None = None
    hopeless: Ratio | None = None
    trained_apart: bool | None = None
    other_requests: float | None = None

    @property
    def is_busy(self) -> bool:
        """Whether the serving head had other traffic, which makes it slower than an idle candidate."""
        return self.other_requests is not None and self.other_requests > BUSY


BUSY = 0.1  #: requests of others for each one of the proof, from which the speed is no verdict
UNKNOWN_TRAINING = (
    "what the head was trained on is not known: if it learned the held-out prompts, this shows nothing"
)


@dataclass(frozen=True)
class Thresholds:
    """What must be shown, from learn.yaml."""

    confidence: float = 0.95
    least_gain: float = 0.0
    most_general_loss: float = 0.02


@dataclass(frozen=True)
class ProofDecision:
    """Whether the head is offered; ``reasons`` say why not, ``notes`` what was not shown."""

    offered: bool
    reasons: tuple[str, ...]
    notes: tuple[str, ...] = ()


def decide(evidence: ProofEvidence, wanted: Thresholds) -> ProofDecision:
    """Offer a head only if it passed every check, is significantly better on held-out prompts, and no worse.

    No worse: on general prompts the whole interval of the acceptance ratio is above the allowed loss. A
    speed-up or a long context that is significantly worse refuses it, too. Beside a serving head with other
    traffic the speed flatters the idle candidate, so it can refuse it and shows nothing else.
    """
    if evidence.head_faults:
        return ProofDecision(False, tuple(f"heads check: {fault}" for fault in evidence.head_faults))
    if evidence.canary_fault is not None:
        return ProofDecision(False, (f"canary: {evidence.canary_fault}",))
    if evidence.hopeless is not None:
        return ProofDecision(False, (_hopeless_reason(evidence.hopeless, evidence.held_out, wanted),))
    reasons = [
        *_identity_reasons(evidence.identity),
        *_held_out_reasons(evidence.held_out, wanted),
        *_general_reasons(evidence.general, wanted),
        *_long_reasons(evidence.long_context, wanted),
    ]
    notes = [] if evidence.long_context is not None else ["long contexts were not measured"]
    notes += [] if evidence.trained_apart else [UNKNOWN_TRAINING]
    notes += _speed_notes(evidence)
    return ProofDecision(not reasons, tuple(reasons), tuple(notes))


def _speed_notes(evidence: ProofEvidence) -> list[str]:
    if evidence.is_busy:
        return [
            f"speed: no verdict, the serving head also answered {evidence.other_requests:.2g} requests of"
            " others for each one of the proof, and the candidate was idle; the acceptance decided"
        ]
    if evidence.other_requests is None:
        return [
            "speed: whether the serving head had other traffic, which makes the candidate look faster, is not"
            " known"
        ]
    return []


def is_hopeless(ratio: Ratio | None, wanted: Thresholds) -> bool:
    """Decide whether even the upper end of an interval of `SURE` is below what an offer needs."""
    return ratio is not None and ratio.is_sound and ratio.high < 1 + wanted.least_gain


def is_look(prompts: int) -> bool:
    """Decide whether a measurement may end after this number of prompts: 16, 32, 64 and so on."""
    return prompts >= FIRST_LOOK and prompts & (prompts - 1) == 0


def _hopeless_reason(ratio: Ratio, held_out: SetEvidence | None, wanted: Thresholds) -> str:
    seen = "" if held_out is None else f" after {held_out.prompts}"
    return (
        f"held-out prompts: the measurement ended{seen}: acceptance {_text(ratio)} times that of the serving"
        f" head ({SURE:.1%} interval), so {1 + wanted.least_gain:g} is out of reach; nothing else was"
        " measured"
    )


def _identity_reasons(checks: Sequence[ProofCheck]) -> Iterator[str]:
    if not checks:
        yield "verify: the answers were not compared with the target's own"
    for check in checks:
        if check.passed is not True:
            how = "failed" if check.passed is False else "could not decide"
            yield f"verify: {check.name} {how}" + (f": {check.summary}" if check.summary else "")


def _failures(name: str, measured: SetEvidence) -> Iterator[str]:
    for head, count in (("candidate", measured.failed), ("serving head", measured.serving_failed)):
        if count:
            yield f"{name} prompts: {count:,} requests of the {head} failed"


def _set_reasons(name: str, measured: SetEvidence | None) -> Iterator[str]:
    if measured is None:
        yield f"{name} prompts were not measured"
        return
    yield from _failures(name, measured)
    units = measured.prompts if measured.conversations is None else measured.conversations
    if units < FEWEST_CONVERSATIONS:
        count_words = f"{measured.prompts}" if measured.conversations is None else f"{units} conversations"
        yield f"{name} prompts: {count_words} were measured; at least {FEWEST_CONVERSATIONS} are needed"
    if measured.acceptance is None:
        yield f"{name} prompts: the answers report no drafts, so the acceptance is not known"
    for metric, ratio in (("acceptance", measured.acceptance), ("speed", measured.speed)):
        if ratio is not None and not ratio.is_sound:
            yield f"{name} prompts: the interval of the {metric} ratio is not sound: {ratio}"
    if measured.speed is None:
        yield f"{name} prompts: the speed was not measured"


def _held_out_reasons(measured: SetEvidence | None, wanted: Thresholds) -> Iterator[str]:
    faults = list(_set_reasons("held-out", measured))
    yield from faults
    if faults or measured is None or measured.acceptance is None or measured.speed is None:
        return
    least = 1 + wanted.least_gain
    if not measured.acceptance.low > least:
        yield (
            f"held-out prompts: acceptance {_text(measured.acceptance)} times that of the serving head; the"
            f" interval must be above {least:g}"
        )
    if measured.speed.high < 1:
        yield f"held-out prompts: significantly slower, {_text(measured.speed)} times as fast"


def _general_reasons(measured: SetEvidence | None, wanted: Thresholds) -> Iterator[str]:
    faults = list(_set_reasons("general", measured))
    yield from faults
    if faults or measured is None or measured.acceptance is None or measured.speed is None:
        return
    least = 1 - wanted.most_general_loss
    if not measured.acceptance.low >= least:
        yield (
            f"general prompts: acceptance {_text(measured.acceptance)} times that of the serving head; the"
            f" interval must not go below {least:g}"
        )
    if measured.speed.high < least:
        yield f"general prompts: significantly slower, {_text(measured.speed)} times as fast"


def _long_reasons(measured: SetEvidence | None, wanted: Thresholds) -> Iterator[str]:
    if measured is None:
        return
    yield from _failures("long", measured)
    ratio = measured.acceptance
    if ratio is None or not ratio.is_sound:
        yield "long prompts: the acceptance is not known"
    elif ratio.high < 1 - wanted.most_general_loss:
        yield f"long prompts: acceptance {_text(ratio)} times that of the serving head, significantly worse"


def _text(ratio: Ratio) -> str:
    return f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


@dataclass(frozen=True)
class Bound:
    """What a proof holds for: exactly this head, data, target and serving config."""

    head: str  #: hash of the head's files
    head_uri: str
    data: str  #: hash of the data, of which the held-out prompts are a part
    target: str
    target_revision: str | None
    endpoint: str
    endpoint_config: str  #: that served when it was measured
    num_speculative_tokens: int | None


@dataclass(frozen=True)
class Proof:
    """One proof: what it holds for, the evidence, the decision, and where the measurements are."""

    bound: Bound
    thresholds: Thresholds
    evidence: ProofEvidence
    decision: ProofDecision
    made_at: str
    tool_version: str
    usd: float | None = None  #: what the measurement cost; None: no price is known
    results: Mapping[str, str] = field(default_factory=dict)  #: results files by name, with their hash
    schema: str = SCHEMA

    def to_json(self) -> str:
        """Return the file's text, sealed against edits."""
        document = asdict(self)
        return json.dumps({**document, "seal": _seal(document)}, indent=1, sort_keys=True) + "\n"


def _seal(document: Mapping[str, Any]) -> str:
    """Return the hash of a record: it shows an accidental or careless edit, not a forger."""
    plain = json.loads(json.dumps({name: each for name, each in document.items() if name != "seal"}))
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def parse_proof(text: str | bytes, origin: str) -> Proof:
    """Parse a proof.

    Raises:
        SpecError: it is not a proof, it was edited, or its decision does not follow from its evidence.
    """
    try:
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise ValueError(f"expected a JSON object with schema {SCHEMA}")
        seal = document.pop("seal", None)
        if seal != _seal(document):
            raise ValueError("it was changed after it was written")
        proof = TypeAdapter(Proof).validate_python(document)
    except ValidationError as error:
        raise _no_proof(origin, first_fault(error)) from error
    except (ValueError, RecursionError) as error:
        raise _no_proof(origin, str(error)) from error
    again = decide(proof.evidence, proof.thresholds)
    if replace(again, notes=proof.decision.notes) != proof.decision:  # an older version had other notes
        raise _no_proof(origin, "its decision does not follow from its evidence")
    return proof


def _no_proof(origin: str, why: str) -> SpecError:
    return SpecError(
        f"{origin} is not a proof: {why}", next_step="Prove the head again: `peagle-sm learn prove`."
    )


def faults_of(proof: Proof, bound: Bound, wanted: Thresholds) -> tuple[str, ...]:
    """Return why a proof does not hold for a promotion; empty if it does."""
    faults = [f"the head was not offered: {reason}" for reason in proof.decision.reasons]
    if not proof.decision.offered and not faults:
        faults = ["the head was not offered"]
    words = {
        "head": "it proves another head",
        "data": "it was measured with other data",
        "target": "it was measured with another target",
        "target_revision": "it was measured with another revision of the target",
        "endpoint": "it was measured beside another endpoint",
        "endpoint_config": "the endpoint has been changed since",
        "num_speculative_tokens": "it was measured with another number of draft tokens",
        "head_uri": "the head is at another address",
    }
    for name, why in words.items():
        then, now = getattr(proof.bound, name), getattr(bound, name)
        if then != now:
            faults.append(f"{why}: found {_short(now)}, proved {_short(then)}")
    again = decide(proof.evidence, wanted)
    if proof.decision.offered and not again.offered:
        faults += [f"learn.yaml now asks for more: {reason}" for reason in again.reasons]
    return tuple(faults)


def _short(value: object) -> str:
    text = str(value)
    return text[:16] if len(text) == 64 and set(text) <= set("0123456789abcdef") else text


def head_hash(files: Mapping[str, str]) -> str:
    """Return the hash of a head from the sha256 of its files; what describes it does not count.

    Only what the engine loads counts: its config and weights.
    """
    loaded = {
        name: each
        for name, each in files.items()
        if name in ("config.json", "model.safetensors.index.json") or name.endswith(".safetensors")
    }
    text = "".join(f"{name}\0{loaded[name]}\n" for name in sorted(loaded))
    return hashlib.sha256(text.encode()).hexdigest()
