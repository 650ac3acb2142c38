"""A draft head in plain torch, with the parameter names of a `speculators` checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.functional import silu


@dataclass(frozen=True)
class Shape:
    """The sizes of a head; ``layers`` of ``heads`` query and ``key_value_heads`` heads of ``width``."""

    hidden: int
    vocabulary: int
    intermediate: int
    layers: int
    heads: int
    key_value_heads: int
    width: int
    rope_theta: float
    epsilon: float

    @classmethod
    def of(cls, config: dict[str, Any]) -> Shape:
        """From a checkpoint's ``config.json``."""
        layer = config["transformer_layer_config"]
        return cls(
            hidden=layer["hidden_size"],
            vocabulary=config["draft_vocab_size"],
            intermediate=layer["intermediate_size"],
            layers=layer["num_hidden_layers"],
            heads=layer["num_attention_heads"],
            key_value_heads=layer["num_key_value_heads"],
            width=layer["head_dim"],
            rope_theta=layer["rope_parameters"]["rope_theta"],
            epsilon=layer["rms_norm_eps"],
        )


class Norm(nn.Module):
    """Root-mean-square norm, computed in float32."""

    def __init__(self, size: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.epsilon = epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Norm of ``x`` over its last dimension."""
        return nn.functional.rms_norm(x.float(), self.weight.shape, self.weight, self.epsilon)


class Projections(nn.Module):
    """The four matrices of an attention; ``reads`` is the width of what the first three read."""

    def __init__(self, shape: Shape, reads: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(reads, shape.heads * shape.width, bias=False)
        self.k_proj = nn.Linear(reads, shape.key_value_heads * shape.width, bias=False)
        self.v_proj = nn.Linear(reads, shape.key_value_heads * shape.width, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.width, shape.hidden, bias=False)


class Gated(nn.Module):
    """Llama's feed-forward part."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.intermediate, bias=False)
        self.down_proj = nn.Linear(shape.intermediate, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[…, H] to [..., H]."""
        made: torch.Tensor = self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))
        return made


class Layer(nn.Module):
    """One decoder layer; the first reads token and state side by side, 2H wide."""

    def __init__(self, shape: Shape, first: bool) -> None:
        super().__init__()
        self.shape, self.first = shape, first
        self.input_layernorm = Norm(shape.hidden, shape.epsilon)
        if first:
            self.hidden_norm = Norm(shape.hidden, shape.epsilon)
        self.self_attn = Projections(shape, 2 * shape.hidden if first else shape.hidden)
        self.post_attention_layernorm = Norm(shape.hidden, shape.epsilon)
        self.mlp = Gated(shape)

    def project(
        self, embedded: torch.Tensor | None, stream: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values, each [B, heads, slots, width]; all as many heads as queries have."""
        if embedded is None:
            read = self.input_layernorm(stream)
        else:
            read = torch.cat([self.input_layernorm(embedded), self.hidden_norm(stream)], -1)
        shared = self.shape.heads // self.shape.key_value_heads

        def split(matrix: nn.Linear) -> torch.Tensor:
            made: torch.Tensor = matrix(read)
            return made.view(*made.shape[:-1], -1, self.shape.width).transpose(1, 2)

        q, k = (rotated(split(m), turn) for m in (self.self_attn.q_proj, self.self_attn.k_proj))
        k, v = (x.repeat_interleave(shared, 1) for x in (k, split(self.self_attn.v_proj)))
        return q, k, v

    def finish(self, stream: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """The stream after this layer; ``attended`` [B, heads, slots, width]."""
        stream = stream + self.self_attn.o_proj(attended.transpose(1, 2).flatten(2))
        return stream + self.mlp(self.post_attention_layernorm(stream))


class Head(nn.Module):
    """A draft head: EAGLE-3's, or with ``parallel`` P-EAGLE's, whose mask slots have a state of their own."""

    def __init__(self, shape: Shape, parallel: bool) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.fc = nn.Linear(3 * shape.hidden, shape.hidden, bias=False)
        self.layers = nn.ModuleList(Layer(shape, first=i == 0) for i in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.epsilon)
        self.lm_head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
        if parallel:
            self.mask_hidden = nn.Parameter(torch.zeros(1, 1, 3 * shape.hidden))

    def turn(self, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine of the rotary angles, each [B, 1, slots, width]."""
        half = torch.arange(0, self.shape.width, 2, device=position.device).float() / self.shape.width
        angle = position[:, None, :, None].float() / self.shape.rope_theta**half
        angle = torch.cat([angle, angle], -1)
        return angle.cos(), angle.sin()


def rotated(x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotary embedding of ``x`` [B, heads, slots, width] by ``turn``."""
    cosine, sine = turn
    first, second = x.float().chunk(2, -1)
    return (x.float() * cosine + torch.cat([-second, first], -1) * sine).to(x.dtype)
