"""The drafter's side: P-EAGLE sizes its one pass by K, and vLLM computes those sizes only at the start.

That is why K by batch size is broken for P-EAGLE up to vLLM 0.33 (vllm#45695). EAGLE-3 counts its passes anew
in each step and needs nothing.
"""

from typing import Any

from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer


def resize(drafter: Any, k: int) -> None:
    """Set the slots that each request gets in the drafter's input.

    With K=1 (and 0, where the pass only keeps the head's cache up to date) there are no mask slots, and the
    input is that of an ordinary EAGLE-3 first pass.
    """
    drafter.extra_slots_per_request = max(k, 1)
    drafter.net_num_new_slots_per_request = max(k, 1) - 1
    drafter.needs_extra_input_slots = k > 1


def install() -> None:
    """Resize before each proposal."""
    original = SpecDecodeBaseProposer.propose
    if getattr(original, "by_peagle", False):
        return

    def propose(self: Any, num_speculative_tokens: int, *args: Any, **kwargs: Any) -> Any:
        if self.parallel_drafting and self.method == "eagle3":
            resize(self, num_speculative_tokens)
        return original(self, num_speculative_tokens, *args, **kwargs)

    propose.by_peagle = True  # type: ignore[attr-defined]
    SpecDecodeBaseProposer.propose = propose
