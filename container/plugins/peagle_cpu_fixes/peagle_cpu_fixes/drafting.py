"""A draft head's first pass over the rows that count, for EAGLE-3 and P-EAGLE alike.

vLLM prepares this pass for a GPU, which must not wait for the CPU: it does not know how many drafts were
rejected, so their rows go through the head as padding, and each row through all of each layer. On a CPU the
number is known and each row costs. So here

- rejected rows are dropped, as vLLM itself does with ``disable_padded_drafter_batch``, which refuses P-EAGLE;
- the last layer attends and transforms for the rows that are sampled, the last of each request; the others
  are only stored in the head's cache (in a prompt's pass, that is nearly all of them);
- P-EAGLE's mask slots enter the first layer with one and the same input, which is projected once.

What is drafted stays the same.
"""

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from vllm.v1.spec_decode.llm_base_proposer import SpecDecodeBaseProposer


@dataclass(frozen=True)
class Rows:
    """Rows of a first pass: ``sampled`` are the last of each request, ``meta`` is their attention metadata.

    ``distinct`` are those with an input of their own, and ``source`` [all rows] is the place among them of
    each row's input; None where all are distinct.
    """

    sampled: Tensor
    meta: Any
    distinct: Tensor | None
    source: Tensor | None


def without_rejected(given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of ``propose`` without the rows of rejected drafts, the last of each request."""
    meta, rejected = given["common_attn_metadata"], given["num_rejected_tokens_gpu"]
    starts, rejections = meta.query_start_loc_cpu.tolist(), rejected.tolist()
    ends = [end - less for end, less in zip(starts[1:], rejections, strict=True)]
    lengths = [end - start for start, end in zip(starts[:-1], ends, strict=True)]
    kept: Any = slice(0, ends[0])
    if len(ends) > 1:
        kept = torch.cat([torch.arange(*piece) for piece in zip(starts[:-1], ends, strict=True)])
    places = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    trimmed = meta.replace(
        query_start_loc=places,
        query_start_loc_cpu=places,
        seq_lens=meta.seq_lens - rejected,
        num_actual_tokens=sum(lengths),
        max_query_len=max(lengths),
        slot_mapping=meta.slot_mapping[kept],
    )
    rows = ("target_token_ids", "target_positions", "target_hidden_states")
    return {
        **given,
        **{name: given[name][kept] for name in rows},
        "common_attn_metadata": trimmed,
        "token_indices_to_sample": None,
        "num_rejected_tokens_gpu": None,
    }


def rows_of(starts: list[int], sampled: int, masks: int) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the sampled and the distinct rows, and each row's source, of requests from ``starts`` on.

    The last ``sampled`` rows of each request are sampled; the last ``masks`` of these are mask slots.
    """
    ends = starts[1:]
    last = torch.cat([torch.arange(end - sampled, end) for end in ends])
    if masks < 2:
        return last, None, None
    distinct, source, taken = [], [], 0
    for start, end in zip(starts[:-1], ends, strict=True):
        count = end - start - masks + 1
        distinct.append(torch.arange(start, start + count))
        source.append(torch.arange(taken, taken + end - start).clamp_(max=taken + count - 1))
        taken += count
    return last, torch.cat(distinct), torch.cat(source)


def install() -> None:
    """Wrap the proposer's two methods: the rows that come in, and the metadata that its layers read."""
    propose_all = SpecDecodeBaseProposer.propose
    build_all = SpecDecodeBaseProposer.build_per_group_and_layer_attn_metadata
    if getattr(propose_all, "by_drafting", False):
        return

    @functools.wraps(propose_all)
    def propose(self: Any, num_speculative_tokens: int, *args: Any, **given: Any) -> Any:
        self.peagle_counts = self.method == "eagle3" and not (
            args or self.uses_mrope or given.get("mm_embed_inputs") is not None
        )
        if self.peagle_counts and given.get("num_rejected_tokens_gpu") is not None:
            given = without_rejected(given)
        return propose_all(self, num_speculative_tokens, *args, **given)

    @functools.wraps(build_all)
    def build(self: Any, common_attn_metadata: Any, draft_index: int = 0) -> Any:
        groups, layers = build_all(self, common_attn_metadata, draft_index)
        if draft_index or not getattr(self, "peagle_counts", False):
            return groups, layers
        starts, sampled = common_attn_metadata.query_start_loc_cpu.tolist(), self.extra_slots_per_request
        requests = len(starts) - 1
        if starts[-1] == requests * sampled:
            return groups, layers
        last, distinct, source = rows_of(starts, sampled, sampled - 1)
        places = sampled * torch.arange(requests + 1, dtype=torch.int32)
        fewer = common_attn_metadata.replace(
            query_start_loc=places,
            query_start_loc_cpu=places,
            num_actual_tokens=requests * sampled,
            max_query_len=sampled,
        )
        of_sampled, _ = build_all(self, fewer, 0)
        for meta, own in zip(groups, of_sampled, strict=True):
            meta.rows = Rows(last, own, distinct, source)
        return groups, layers

    propose.by_drafting = True  # type: ignore[attr-defined]
    SpecDecodeBaseProposer.propose = propose
    SpecDecodeBaseProposer.build_per_group_and_layer_attn_metadata = build
