"""The hooks of the controller: steps of the scheduler go in, K comes out, decisions become metrics.

On with ``PEAGLE_SM_ADAPTIVE_K=1``. The decision itself is in `controller`; here are the clock and vLLM.

A step takes from the end of the step before it to its own end. So the host's work is in it, and
asynchronous scheduling (the next step is scheduled before this one ends) changes nothing; a pause without
requests is not in it. Only steps of decodes alone are learned from, in which every request verified as many
drafts as the next step will. Prefills, requests with a K of their own, and the one step after a change of K
do not show the cost of a K.

The metrics travel in vLLM's own SchedulerStats, which each step sends to one API server, and are counted
there by vLLM's Prometheus logger, under its labels. With several API servers they add up as vLLM's own do.
"""

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from prometheus_client import Counter, Gauge
from vllm.config import VllmConfig
from vllm.logger import init_logger
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.metrics.loggers import PrometheusStatLogger
from vllm.v1.metrics.stats import SchedulerStats

from .controller import Controller, Steps

SWITCH = "PEAGLE_SM_ADAPTIVE_K"
LEARN_S = 0.25  #: steps alike are learned from together, up to this time
SHORT_OF_DRAFTS = 0.9  #: share of the drafts that must be there; a grammar or the context's end takes some
LABELS = ["model_name", "engine"]

logger = init_logger("vllm.peagle_runtime_k")


def is_on() -> bool:
    """Return whether the environment asks for the controller."""
    return os.environ.get(SWITCH, "").strip().lower() in ("1", "true")


def refuse_what_it_cannot_follow(config: VllmConfig) -> None:
    """Stop the start of an engine whose steps do not show the cost of a K.

    Raises:
        ValueError: with what to set instead.
    """
    if config.parallel_config.pipeline_parallel_size > 1:
        raise ValueError(
            f"{SWITCH}: with pipeline parallelism a step shows no K's cost; use tensor parallelism"
        )


class Follower:
    """The controller of one scheduler. ``bounds[n]`` is the largest K with n requests."""

    def __init__(self, bounds: Sequence[int], clock: Callable[[], float] = time.monotonic) -> None:
        self.controller = Controller(bounds)
        self.off = ""  #: why it is off for good
        self._clock = clock
        self._mark = clock()
        self._idle = True
        self._group: tuple[int, int, bool] | None = None
        self._steps = 0
        self._seconds = 0.0
        self._survived: list[int] = []
        self._told = 0
        self._said = ""

    def choose(self, running: int) -> int:
        """Return K for the step that was just scheduled, of which the next step verifies the drafts."""
        now = self._clock()
        if self._idle:
            self._mark, self._idle = now, False
        if self.off:
            return self.controller.bounds[min(running, len(self.controller.bounds) - 1)]
        return self.controller.decide(now, running)

    def learn(self, output: Any, sampled: Any, busy: bool) -> None:
        """Take in a step that has ended; ``busy`` if the engine has more to do."""
        now = self._clock()
        seconds, self._mark = now - self._mark, now
        self._idle = not busy
        if not output.num_scheduled_tokens or self.off:
            return
        drafts = output.scheduled_spec_decode_tokens
        running, drafted = len(output.num_scheduled_tokens), sum(map(len, drafts.values()))
        if output.total_num_scheduled_tokens != running + drafted:
            self._flush()
            self.controller.unseen(seconds, "every step computes a prompt")
            return
        k = max(map(len, drafts.values()), default=0)
        if drafted < SHORT_OF_DRAFTS * running * k:
            self._flush()
            self.controller.unseen(seconds, "requests name their own K, or drafts are missing")
            return
        group = (running, k, k == output.num_spec_tokens_to_schedule)
        if group != self._group or self._seconds >= LEARN_S:
            self._flush()
            self._group, self._survived = group, [0] * k
        self._steps += 1
        self._seconds += seconds
        survived = self._survived
        for tokens in sampled:
            for at in range(min(len(tokens) - 1, k)):
                survived[at] += 1

    def _flush(self) -> None:
        if self._group is not None and self._steps:
            running, k, alike = self._group
            steps = Steps(running, k, self._steps, self._seconds, self._survived, alike)
            self.controller.record(steps)
        self._group, self._steps, self._seconds, self._survived = None, 0, 0.0, []

    def report(self, k: int) -> dict[str, Any]:
        """Return what one step adds to the metrics."""
        switches, why = self.controller.switches, self.off or self.controller.why
        added, self._told = switches - self._told, switches
        if why != self._said:
            self._said = why
            logger.info("the controller of K %s", f"is off: {why}" if why else "follows the load")
        return {"k": k, "switches": added, "why": why}

    def fail(self, error: Exception) -> None:
        """Turn the controller off: an error of it must not end the engine."""
        self.off = f"{type(error).__name__}: {error}"
        logger.exception("the controller of K has failed and is off; K is the table's")


def install() -> None:
    """Wrap what starts, ends and reports a step. `scheduling` asks for K."""
    if getattr(Scheduler.update_from_output, "by_peagle", False):
        return
    add_field()
    _wrap_end_of_step()
    _wrap_stats()
    _wrap_metrics()


def begin(scheduler: Any) -> None:
    """Give a scheduler its controller."""
    refuse_what_it_cannot_follow(scheduler.vllm_config)
    scheduler.peagle_follower = Follower(scheduler.dynamic_sd_lookup)


def choose(scheduler: Any, running: int, otherwise: int) -> int:
    """Return K for the requests that name none: the controller's, else ``otherwise``."""
    follower = getattr(scheduler, "peagle_follower", None)
    if follower is None:
        return otherwise
    try:
        return follower.choose(running)
    except Exception as error:
        follower.fail(error)
        return otherwise


def _wrap_end_of_step() -> None:
    original = Scheduler.update_from_output

    def update(self: Any, scheduler_output: Any, model_runner_output: Any) -> Any:
        self.peagle_step_k = scheduler_output.num_spec_tokens_to_schedule
        result = original(self, scheduler_output, model_runner_output)
        follower = getattr(self, "peagle_follower", None)
        if follower is not None and not follower.off:
            try:
                follower.learn(scheduler_output, model_runner_output.sampled_token_ids, self.has_requests())
            except Exception as error:
                follower.fail(error)
        return result

    update.by_peagle = True  # type: ignore[attr-defined]
    Scheduler.update_from_output = update


def add_field() -> None:
    """Add a field to SchedulerStats, in the engine that writes it and in the API server that reads it.

    vLLM has no place for the figures of a plugin, and msgspec sends and reads the fields of the dataclass.
    """
    kind = dict[str, int | str] | None
    new = dataclasses.make_dataclass("_", [("peagle", kind, dataclasses.field(default=None))])
    SchedulerStats.__annotations__["peagle"] = kind
    SchedulerStats.__dataclass_fields__["peagle"] = dataclasses.fields(new)[0]
    SchedulerStats.peagle = None


def _wrap_stats() -> None:
    original = Scheduler.make_stats

    def make_stats(self: Any, *args: Any, **kwargs: Any) -> Any:
        stats = original(self, *args, **kwargs)
        follower = getattr(self, "peagle_follower", None)
        if stats is not None and follower is not None:
            stats.peagle = follower.report(getattr(self, "peagle_step_k", follower.controller.k))
        return stats

    Scheduler.make_stats = make_stats


class Metrics:
    """The controller's metrics, under the labels of vLLM's own."""

    def __init__(self) -> None:
        self.k = Gauge(
            "peagle:num_speculative_tokens",
            "Draft tokens per request in the last step (K).",
            LABELS,
            multiprocess_mode="mostrecent",
        )
        self.state = Gauge(
            "peagle:k_controller_state",
            "1 for the controller's state now: following, or the reason why K does not follow the load.",
            [*LABELS, "state"],
            multiprocess_mode="mostrecent",
        )
        self.switches = Counter("peagle:k_switches", "Changes of K by the controller.", LABELS)
        self.steps = Counter(
            "peagle:k_steps", "Steps of the engine by K.", [*LABELS, "num_speculative_tokens"]
        )
        self._said: dict[str, str] = {}

    def record(self, found: dict[str, Any], model: str, engine: str) -> None:
        """Count one step."""
        self.k.labels(model, engine).set(found["k"])
        self.switches.labels(model, engine).inc(found["switches"])
        self.steps.labels(model, engine, str(found["k"])).inc()
        state = found["why"] or "following"
        before = self._said.get(engine)
        if before != state:
            if before is not None:
                self.state.labels(model, engine, before).set(0)
            self._said[engine] = state
            self.state.labels(model, engine, state).set(1)


_metrics: list[Metrics] = []  # one of a process: Prometheus refuses a name that is registered twice


def _wrap_metrics() -> None:
    original = PrometheusStatLogger.record

    def record(
        self: Any, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
    ) -> None:
        original(self, scheduler_stats, iteration_stats, mm_cache_stats, engine_idx)
        found = getattr(scheduler_stats, "peagle", None)
        if found:
            if not _metrics:
                _metrics.append(Metrics())
            model = self.vllm_config.model_config.served_model_name
            _metrics[0].record(found, str(model), str(engine_idx))

    PrometheusStatLogger.record = record
