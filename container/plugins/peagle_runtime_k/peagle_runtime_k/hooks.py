"""The hooks in vLLM: the K that a request asks for, the K of each step, and P-EAGLE's sizes for it.

vLLM drafts one K for a whole batch (``num_spec_tokens_to_schedule``, made for K by batch size). Here it is
the largest that a request of the batch asks for, and each request keeps as many drafts as it asked for.

P-EAGLE sizes its one pass by K, and vLLM computes those sizes only at the start. That is why K by batch size
is broken for P-EAGLE up to vLLM 0.33 (vllm#45695). EAGLE-3 counts its passes anew in each step and needs
nothing.
"""

from typing import Any

from vllm.config import VllmConfig
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds
from vllm.v1.request import Request
from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer

FIELD = "num_speculative_tokens"


def install() -> None:
    """Wrap what checks a request, the four places of the scheduler that decide K, and the proposer; once."""
    if getattr(Scheduler.__init__, "by_peagle", False):
        return
    _wrap_check()
    _wrap_start()
    _wrap_step()
    _wrap_drafts()
    _wrap_proposal()


def asked(sampling_params: SamplingParams | None) -> int | None:
    """Return the request's K; None without one."""
    extra = getattr(sampling_params, "extra_args", None)
    return extra.get(FIELD) if extra else None


def check(value: Any, most: int) -> None:
    """Refuse what is not a whole number from 0 to ``most``.

    Raises:
        VLLMValidationError: answered as HTTP 400. Otherwise the engine would end for all users.
    """
    if type(value) is not int or not 0 <= value <= most:
        raise VLLMValidationError(
            f"vllm_xargs.{FIELD}: found {value!r}; allowed: 0 to {most}, the engine's own at its start",
            parameter=f"vllm_xargs.{FIELD}",
            value=value,
        )


def _wrap_check() -> None:
    """Check every request's K where vLLM checks its other sampling parameters."""
    original = SamplingParams._validate_spec_decode

    def validate(self: SamplingParams, speculative_config: Any) -> None:
        value = asked(self)
        if value is not None:
            check(value, speculative_config.num_speculative_tokens if speculative_config else 0)
        original(self, speculative_config)

    SamplingParams._validate_spec_decode = validate


def refuse_what_would_break(config: VllmConfig) -> None:
    """Stop the start of an engine in which K cannot change.

    Raises:
        ValueError: with what to set instead.
    """
    if config.use_v2_model_runner:
        raise ValueError("PEAGLE_SM_RUNTIME_K: needs VLLM_USE_V2_MODEL_RUNNER=0")
    if config.parallel_config.data_parallel_size > 1:
        raise ValueError("PEAGLE_SM_RUNTIME_K: data parallel ranks would disagree on K; use one")
    if config.compilation_config.cudagraph_mode.has_full_cudagraphs():
        # A full CUDA graph holds one number of tokens per request; vLLM leaves them out when K is dynamic.
        raise ValueError(
            "PEAGLE_SM_RUNTIME_K: full CUDA graphs hold one K; set "
            'SM_VLLM_COMPILATION_CONFIG={"cudagraph_mode": "PIECEWISE"} (serving.env in the spec)'
        )


def wanted(scheduler: Any, request: Request) -> int:
    """Return the K of one request: its own, else what the engine would have used."""
    value = asked(request.sampling_params)
    return scheduler.peagle_default_k if value is None else min(value, scheduler.num_spec_tokens)


def _wrap_start() -> None:
    original = Scheduler.__init__

    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.peagle_default_k = self.num_spec_tokens
        if self.num_spec_tokens:
            refuse_what_would_break(self.vllm_config)
            if self.dynamic_sd_lookup is None:
                # With a table vLLM pads no request up to the largest K, which would undo a smaller one.
                self.dynamic_sd_lookup = [self.num_spec_tokens] * (self.max_num_running_reqs + 1)

    start.by_peagle = True  # type: ignore[attr-defined]
    Scheduler.__init__ = start


def _wrap_step() -> None:
    before, after = Scheduler._update_after_schedule, AsyncScheduler._update_after_schedule

    def decide(self: Any, output: SchedulerOutput) -> None:
        # Here and not later: what follows makes room for as many drafts as this says.
        if self.num_spec_tokens and output.num_scheduled_tokens:
            self.peagle_default_k = output.num_spec_tokens_to_schedule
            output.num_spec_tokens_to_schedule = max(
                wanted(self, self.requests[name]) for name in output.num_scheduled_tokens
            )
        before(self, output)

    def trim(self: Any, output: SchedulerOutput) -> None:
        after(self, output)
        for name in output.num_scheduled_tokens if self.num_spec_tokens else ():
            request = self.requests[name]
            # A copy: vLLM gives the same list of placeholders to every request.
            request.spec_token_ids = request.spec_token_ids[: wanted(self, request)]

    Scheduler._update_after_schedule = decide
    AsyncScheduler._update_after_schedule = trim


def _wrap_drafts() -> None:
    original = Scheduler.update_draft_token_ids

    def update(self: Any, drafts: DraftTokenIds) -> None:
        for name, tokens in zip(drafts.req_ids, drafts.draft_token_ids, strict=False):
            request = self.requests.get(name)
            if request is not None:
                del tokens[wanted(self, request) :]
        original(self, drafts)

    Scheduler.update_draft_token_ids = update


def resize(drafter: Any, k: int) -> None:
    """Set the slots that each request gets in the drafter's input.

    With K=1 (and 0, where the pass only keeps the head's cache up to date) there are no mask slots, and the
    input is that of an ordinary EAGLE-3 first pass.
    """
    drafter.extra_slots_per_request = max(k, 1)
    drafter.net_num_new_slots_per_request = max(k, 1) - 1
    drafter.needs_extra_input_slots = k > 1


def _wrap_proposal() -> None:
    original = SpecDecodeBaseProposer.propose

    def propose(self: Any, num_speculative_tokens: int, *args: Any, **kwargs: Any) -> Any:
        if self.parallel_drafting and self.method == "eagle3":
            resize(self, num_speculative_tokens)
        return original(self, num_speculative_tokens, *args, **kwargs)

    SpecDecodeBaseProposer.propose = propose
