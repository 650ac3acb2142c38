"""K of each draft head on this machine: measured at run time, in the engines that are then compared.

The catalogue's K was measured on one machine, and the best K differs between machines. Each engine starts
with the largest K; its requests name a smaller one, as those of `peagle-sm tune --local` do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from peagle_bench.benchmark.endpoint_arm import describe_endpoint
from peagle_bench.load import WorkItem
from peagle_bench.results.records import Reading
from peagle_bench.tune.outcome import conclude
from peagle_bench.tune.windows import EndpointReader, WindowReader
from peagle_sm.aws.session.session import Session
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.plan.environment import RUNTIME_K
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.core.spec.modes import Mode
from peagle_sm.service import Endpoint
from scripts.bench.comparison import MODEL, spec_of

#: What is tried besides the catalogue's K. A P-EAGLE draft takes one pass whatever its K, so larger ones pay.
CANDIDATES: Mapping[Mode, tuple[int, ...]] = {"eagle3": (3, 5, 7, 9), "p-eagle": (5, 7, 9, 11)}
ROUNDS = 3  #: every K once a round, in alternating direction; without repeats the noise would be unknown
REQUESTS = 3  #: of a window: with three rounds about 20 s for both heads, on two quiet cores
K_PROMPTS = 16  #: prompts to choose K with, apart from those that the modes are compared on


@dataclass(frozen=True)
class MachineK:
    """The K chosen for one head.

    ``rates``: mean tokens per second of each K over the rounds, from the first token on. The comparison's are
    lower: they count the wait for the first token, and drafts beyond the last token are lost.
    """

    mode: Mode
    k: int
    catalogue: int
    rates: Mapping[int, float]
    reason: str

    def text(self) -> str:
        """One line for the terminal."""
        rates = ", ".join(f"K={k} {rate:.0f}" for k, rate in self.rates.items())
        return f"{self.mode}: K={self.k} (catalogue: {self.catalogue}); tokens/s while decoding: {rates}"


def candidates(mode: Mode) -> tuple[int, ...]:
    """The K to measure, ascending: those of the mode, and the catalogue's."""
    return tuple(sorted({*CANDIDATES[mode], _catalogue_k(mode)}))


def _catalogue_k(mode: Mode) -> int:
    return load_catalog().model(MODEL).default_num_speculative_tokens[mode]


def runtime_spec(mode: Mode, *, compiled: bool = False) -> EndpointSpec:
    """The spec of an engine that takes each request's K, up to the mode's largest candidate."""
    spec = spec_of(mode, max(candidates(mode)), compiled=compiled)
    serving = spec.serving.model_copy(update={"env": {**spec.serving.env, RUNTIME_K: "1"}})
    return spec.model_copy(update={"name": f"tiny-{mode}", "serving": serving})


def choose_k(mode: Mode, reader: WindowReader, rounds: int = ROUNDS) -> MachineK:
    """Measure every candidate in rounds, one request at a time, and choose as `peagle-sm tune` does."""
    ks = candidates(mode)
    readings: list[Reading] = []
    for block in range(rounds):
        readings += [reader.read(k, 1, block) for k in (ks if block % 2 == 0 else reversed(ks))]
    choice = conclude(mode, readings, deployments=1).choices[1]
    rates = {k: fmean(reading.rate for reading in readings if reading.k == k) for k in ks}
    return MachineK(mode, choice.k, _catalogue_k(mode), rates, choice.reason)


def choose_ks(
    session: Session,
    endpoints: Mapping[str, Endpoint],
    items: Sequence[WorkItem],
    say: Callable[[str], None],
) -> dict[Mode, MachineK]:
    """Choose the K of each head, and say which."""
    chosen: dict[Mode, MachineK] = {}
    for mode in CANDIDATES:
        chosen[mode] = choose_k(mode, reader_of(session, endpoints[mode], mode, items))
        say(f"   {chosen[mode].text()}")
    return chosen


def reader_of(session: Session, endpoint: Endpoint, mode: Mode, items: Sequence[WorkItem]) -> EndpointReader:
    """The reader of one engine; its requests take other prompts in each round, the same for each K."""
    return EndpointReader(
        endpoint,
        mode,
        describe_endpoint(session, endpoint.name).arm,
        items,
        REQUESTS,
        sink=lambda record: None,
        runtime=True,
        salt="machine-k",
    )
