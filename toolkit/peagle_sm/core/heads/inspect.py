"""The whole check of a head: its files, its layout, its weights, its vocabulary, its target. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from peagle_sm.core.heads.drafting import depth_faults, drafting_faults
from peagle_sm.core.heads.fault import HeadFault, HeadReport
from peagle_sm.core.heads.layout import Layout, read_layout
from peagle_sm.core.heads.reading import Contents, Folder, read_contents
from peagle_sm.core.heads.safetensors import FLOATS, Tensor
from peagle_sm.core.heads.target import target_facts, target_faults
from peagle_sm.core.heads.vocabulary import vocabulary_faults
from peagle_sm.core.heads.weights import MASK, weight_faults

_ORDER = {"error": 0, "warning": 1, "info": 2}


def inspect_head(
    folder: Folder,
    *,
    target: Mapping[str, Any] | None = None,
    mode: str | None = None,
    num_speculative_tokens: int | None = None,
    trained_k: int | None = None,
    target_name: str | None = None,
) -> HeadReport:
    """Look at a head and say all that is wrong with it; errors come first.

    Args:
        folder: where its files are.
        target: the ``config.json`` of the target that it is to draft for; None leaves those checks out.
        mode: "eagle3" or "p-eagle", as it is to draft; None takes what its files make it.
        num_speculative_tokens: how many tokens it is to propose; None leaves that check out.
        trained_k: how many it was trained for, where its config does not say.
        target_name: what the target is called, for the report.

    Raises:
        OSError: whatever the folder's ``read`` raises.
    """
    contents = read_contents(folder)
    layout, read = (None, []) if contents.config is None else read_layout(contents.config)
    faults = [*contents.faults, *read]
    parallel = _is_parallel(layout, contents.tensors) if mode is None else mode == "p-eagle"
    trained = trained_k if layout is None or layout.trained_k is None else layout.trained_k
    if layout is not None:
        faults += drafting_faults(layout, parallel=parallel, has_mask=MASK in contents.tensors)
        faults += depth_faults(num_speculative_tokens, trained, parallel=parallel)
        if contents.tensors:
            faults += weight_faults(layout, contents.tensors, parallel=parallel)
        faults += vocabulary_faults(layout, contents.values)
        if target is not None:
            faults += target_faults(layout, target_facts(target))
    report = HeadReport(
        place=folder.place,
        trained_k=trained,
        licence=contents.licence,
        revision=folder.revision,
        target=target_name or (layout.verifier if layout else None),
        target_known=target is not None,
        files=folder.records(),
        parameters=sum(each.count for each in contents.tensors.values() if each.dtype in FLOATS),
        dtype=_dtype(contents),
        faults=tuple(_sorted(faults)),
    )
    return report if layout is None else _with_layout(report, layout, parallel)


def inspect_files(folder: Folder) -> HeadReport:
    """Look at a folder of weights of any kind, a target's say: its files alone, not their layout.

    Raises:
        OSError: whatever the folder's ``read`` raises.
    """
    contents = read_contents(folder)
    return HeadReport(
        place=folder.place,
        licence=contents.licence,
        revision=folder.revision,
        files=folder.records(),
        parameters=sum(each.count for each in contents.tensors.values()),
        dtype=_dtype(contents),
        faults=tuple(_sorted(contents.faults)),
    )


def _is_parallel(layout: Layout | None, tensors: Mapping[str, Tensor]) -> bool:
    if layout is None:
        return False
    if layout.declared_parallel is not None:
        return layout.declared_parallel
    return bool(layout.mask_tokens) or MASK in tensors


def _with_layout(report: HeadReport, layout: Layout, parallel: bool) -> HeadReport:
    token = layout.mask_token
    return replace(
        report,
        format=layout.format,
        method="p-eagle" if parallel else "eagle3",
        architecture=layout.architecture,
        layers=layout.layers,
        hidden_size=layout.hidden,
        target_hidden_size=layout.target_hidden,
        vocab_size=layout.vocab,
        draft_vocab_size=layout.draft_vocab,
        mask_token_id=token if parallel and type(token) is int else None,
        aux_layer_ids=layout.aux_layer_ids,
    )


def _dtype(contents: Contents) -> str | None:
    found = sorted({each.dtype for each in contents.tensors.values() if each.dtype in FLOATS})
    return ", ".join(found) or None


def _sorted(faults: Iterable[HeadFault]) -> list[HeadFault]:
    return sorted(faults, key=lambda fault: _ORDER[fault.severity])
