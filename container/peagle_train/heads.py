"""A head's two layouts: the one that vLLM serves, and the library's.

vLLM has no ``model.`` before a name, calls the first layer ``midlayer``, and may leave out what a head shares
with its target. The library's recipe refuses a file with holes. vLLM counts the layers whose output the head
reads from 1. If the config has no layers, vLLM silently uses defaults; the library's own export has none.
"""

import json
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peagle_train import Mistake
from peagle_train.rules import HeadShape, head_faults, head_shape
from peagle_train.target import Target, read_config, tensors_of

TOKEN_MAP = "tokens.pt"
"""The library's file with the chosen draft tokens, beside the head to start from."""
_AT_THE_TOP = ("lm_head.", "mask_hidden", "d2t", "t2d")
_KEPT = tuple(
    [
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "attention_bias",
        "head_dim",
        "hidden_act",
        "hidden_size",
        "initializer_range",
        "intermediate_size",
        "max_position_embeddings",
        "mlp_bias",
        "num_attention_heads",
        "num_hidden_layers",
        "num_key_value_heads",
        "rms_norm_eps",
        "vocab_size",
        "draft_vocab_size",
        "target_hidden_size",
        "norm_output",
        "fc_norm",
    ]
)


@dataclass(frozen=True)
class Head(HeadShape):
    """A head to start from, with its folder."""

    folder: Path


def unpacked(folder: Path, work: Path) -> Path:
    """Return the folder of the head's files: a job's ``model.tar.gz`` is unpacked into ``work``.

    Raises:
        Mistake: the archive cannot be read, or has a path outside itself.
    """
    archive = folder / "model.tar.gz"
    if (folder / "config.json").is_file() or not archive.is_file():
        return folder
    try:
        with tarfile.open(archive) as opened:
            opened.extractall(work, filter="data")
    except (OSError, tarfile.TarError, EOFError) as error:
        raise Mistake(f"the channel head: model.tar.gz cannot be read: {error}") from error
    return work


def read_head(folder: Path, target: Target) -> Head:
    """Read a head in vLLM's layout and check that it fits the target.

    Raises:
        Mistake: it cannot be trained further for this target.
    """
    config = read_config(folder, "the head to start from")
    try:
        head = Head(**asdict(head_shape(config, target.longest)), folder=folder)
    except ValueError as error:
        raise Mistake(str(error)) from error
    for fault in head_faults(config, head, target):
        raise Mistake(f"the head to start from: {fault}")
    names = {name for file in weights_of(folder) for name in tensors_of(file)}
    if "mask_hidden" not in names:
        raise Mistake("the head to start from: its weights have no mask_hidden; it cannot draft in parallel")
    return head


def weights_of(folder: Path) -> list[Path]:
    """Return the folder's safetensors files."""
    return sorted(folder.glob("*.safetensors"))


def library_name(name: str) -> str:
    """Return the library's name of a tensor that vLLM calls ``name``."""
    plain = name.replace("midlayer.", "layers.0.", 1) if name.startswith("midlayer.") else name
    return plain if plain.startswith(_AT_THE_TOP) else f"model.{plain}"


def vllm_name(name: str) -> str:
    """Return vLLM's name of a tensor that the library calls ``name``."""
    plain = name.removeprefix("model.")
    return plain.replace("layers.0.", "midlayer.", 1) if plain.startswith("layers.0.") else plain


def vllm_config(
    draft: Mapping[str, Any], aux_layer_ids: tuple[int, ...], mask_token_id: int
) -> dict[str, Any]:
    """Return the ``config.json`` that vLLM reads, from the library's config of the draft.

    Few keys are kept: ``layer_types`` and ``sliding_window`` of a target would give the head a window in vLLM
    that it did not have in training.
    """
    ropes = draft.get("rope_parameters") or {"rope_type": "default", "rope_theta": draft["rope_theta"]}
    layers = list(aux_layer_ids)
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "tie_word_embeddings": False,
        **{key: draft[key] for key in _KEPT if key in draft},
        "rope_parameters": ropes,
        "norm_before_residual": False,
        "eagle_aux_hidden_state_layer_ids": layers,
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": layers, "use_aux_hidden_state": True},
        "ptd_token_id": mask_token_id,
        "parallel_drafting": True,
    }


def write_warm_start(head: Head, target: Target, out: Path) -> None:
    """Write the head as the library's ``draft_weights_path``, and its map of draft tokens if it has one.

    Raises:
        Mistake: the target does not have what the head shares with it.
    """
    import torch
    from safetensors.torch import load_file, save_file

    tensors = {
        library_name(name): tensor
        for file in weights_of(head.folder)
        for name, tensor in load_file(file).items()
    }
    # d2t has the distance from a draft token's number to the target's.
    chosen = torch.arange(head.draft_vocab) + tensors["d2t"].long() if head.draft_vocab < head.vocab else None
    for name, rows in (("model.embed_tokens.weight", None), ("lm_head.weight", chosen)):
        if name not in tensors:
            shared = _shared(target, name.removeprefix("model."))
            tensors[name] = shared if rows is None else shared[rows]
    out.mkdir(parents=True, exist_ok=True)
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(whole, out / "model.safetensors", metadata={"format": "pt"})
    if chosen is not None:
        torch.save({"selected_token_ids": chosen, "target_vocab_size": head.vocab}, out / TOKEN_MAP)


def start_output(draft: Any, target: Target, chosen: Any) -> None:
    """Let the output matrix of a head from nothing begin as the target's rows of the drafted tokens.

    ``speculators`` begins so, too; from chance, a head first spends much of its data on what a token is.
    Where the target stores no such matrix of its own size, the head's stays as it is.
    """
    import torch

    rows = _stored(target, "lm_head.weight")
    if rows is not None and rows.is_floating_point():
        with torch.no_grad():
            draft.lm_head.weight.copy_(rows[chosen.cpu()])


def _shared(target: Target, name: str) -> Any:
    stored = _stored(target, name)
    if stored is None:
        raise Mistake(f"neither the head nor the target has {name}")
    return stored


def _stored(target: Target, name: str) -> Any:
    """Return the target's embedding or output matrix, or None; where they are tied, the embedding is both."""
    from safetensors import safe_open

    for wanted in (name, "embed_tokens.weight"):
        for file in weights_of(target.folder):
            for tensor, entry in tensors_of(file).items():
                if tensor.endswith(wanted) and tuple(entry["shape"]) == (target.vocab, target.hidden):
                    with safe_open(file, "pt") as opened:
                        return opened.get_tensor(tensor)
    return None


def without_shared(state: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """Leave out an embedding that is the target's: vLLM takes the target's, and the file is smaller."""
    import torch

    name = "model.embed_tokens.weight"
    own, stored = state[name].detach().cpu(), _stored(target, "embed_tokens.weight")
    is_shared = stored is not None and torch.equal(own.to(torch.bfloat16), stored.to(torch.bfloat16))
    return {key: tensor for key, tensor in state.items() if key != name or not is_shared}


def write_head(state: Mapping[str, Any], config: Mapping[str, Any], out: Path) -> int:
    """Write a trained draft in vLLM's layout, in bfloat16; return the number of its parameters."""
    import torch
    from safetensors.torch import save_file

    tensors = {}
    for name, tensor in state.items():
        value = tensor.detach().cpu()
        tensors[vllm_name(name)] = (
            value.to(torch.bfloat16) if value.is_floating_point() else value
        ).contiguous()
    out.mkdir(parents=True, exist_ok=True)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    return sum(tensor.numel() for tensor in tensors.values() if tensor.is_floating_point())
