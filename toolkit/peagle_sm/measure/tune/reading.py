"""What one measurement of one K under one concurrency tells the tuner. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from peagle_sm.measure.records import Mode, WindowRecord

StepSource = Literal["metrics", "drafts", "chunks", "simulated"]


@dataclass(frozen=True)
class Reading:
    """One mode at one K and one concurrency, over one measured window.

    ``survival[i]`` is the share of steps whose draft token i+1 was accepted (unconditional), empty without
    speculation. ``step_ms`` is the time of one verification step of one request. ``step_source`` says where
    it is from: the engine's own histogram of inter-token latency (``metrics``), stream time by verification
    steps (``drafts``), or the gaps between chunks as the client saw them (``chunks``).
    """

    k: int
    concurrency: int
    acceptance_length: float
    survival: tuple[float, ...]
    step_ms: float
    otps: float  #: output tokens a second as measured, first tokens included: for the record, not for the fit
    steps: int  #: verification steps that it rests on; 0 where they are not known
    step_source: StepSource = "drafts"
    block: int = 0  #: in which round it was taken

    @property
    def rate(self) -> float:
        """Tokens a second of all requests in flight, while they decode."""
        return self.concurrency * self.acceptance_length * 1000 / self.step_ms


def window_record(mode: Mode, reading: Reading, untrusted: str | None) -> WindowRecord:
    """The reading as a line of the results file."""
    return WindowRecord(mode=mode, untrusted=untrusted, **asdict(reading))


def reading_in(record: WindowRecord) -> Reading:
    """The reading that `window_record` wrote."""
    fields = asdict(record)
    return Reading(**{name: value for name, value in fields.items() if name not in ("mode", "untrusted")})
