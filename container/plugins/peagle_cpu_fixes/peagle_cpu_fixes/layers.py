"""Llama layers of an eager CPU engine, each as one straight line of kernel calls.

On a GPU a decode step is a recorded graph: no Python runs between its kernels. The eager CPU engine runs
some hundred lines of Python in each layer, which for a small model takes as long as its arithmetic.
So each decoder layer gets a forward here that calls the same kernels one after the other. The target and both
kinds of draft head are made of these layers, and all of them get it.

It computes what the layer computes, with the same roundings. A layer that is not plain (quantised, sharded,
of another class, in a compiled model) keeps its own forward.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from vllm import forward_context
from vllm.config import CompilationMode, VllmConfig
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.linear import UnquantizedLinearMethod
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding
from vllm.model_executor.models import llama, llama_eagle3
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackendImpl

Linear = Callable[[Tensor], Tensor]
silu = torch._C._nn.silu


def straighten(model: torch.nn.Module, config: VllmConfig) -> int:
    """Give each plain Llama layer of the model its straight forward; returns how many got one."""
    parallel = config.parallel_config
    if (
        config.compilation_config.mode != CompilationMode.NONE
        or parallel.world_size > 1
        or config.lora_config is not None
        or config.kv_transfer_config is not None
    ):
        return 0
    makers = {llama.LlamaDecoderLayer: target_layer, llama_eagle3.LlamaDecoderLayer: head_layer}
    changed = 0
    layers = [layer for layer in model.modules() if type(layer) in makers]
    for layer in model.modules():
        make = makers.get(type(layer))
        if make is not None and is_plain(layer):
            layer.forward = make(layer, layer is layers[-1])
            changed += 1
        elif type(layer) is RMSNorm and is_plain_norm(layer):
            layer.forward = functools.partial(either, *norms(layer))
    return changed


def is_plain(layer: Any) -> bool:
    """Whether nothing happens in the layer but what is done here."""
    block, perceptron = layer.self_attn, layer.mlp
    attn = block.attn
    products = (block.qkv_proj, block.o_proj, perceptron.gate_up_proj, perceptron.down_proj)
    scales = [layer.input_layernorm, layer.post_attention_layernorm, getattr(layer, "hidden_norm", None)]
    return (
        type(block) is llama.LlamaAttention
        and type(perceptron) is llama.LlamaMLP
        and type(attn) is Attention
        and type(attn.impl) is CPUAttentionBackendImpl
        and attn.attn_type == AttentionType.DECODER
        and attn.query_quant is None
        and attn.impl.sinks is None
        and attn.kv_sharing_target_layer_name is None
        and type(block.rotary_emb).forward_cpu is RotaryEmbedding.forward_cpu
        and all(type(product.quant_method) is UnquantizedLinearMethod for product in products)
        and all(hasattr(product, "cpu_linear") for product in products)
        and not any(product.skip_bias_add for product in products)
        and all(is_plain_norm(scale) for scale in scales if scale is not None)
    )


def is_plain_norm(norm: Any) -> bool:
    """Whether the norm is of the whole width and has a weight."""
    return type(norm) is RMSNorm and norm.has_weight and norm.variance_size_override is None


def target_layer(layer: Any, is_last: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the forward of a Llama layer; its last one is like the others."""
    first, add_first = norms(layer.input_layernorm)
    _, add_second = norms(layer.post_attention_layernorm)
    attend, transform = attention(layer.self_attn), mlp(layer.mlp)

    def forward(positions: Tensor, hidden_states: Tensor, residual: Tensor | None) -> tuple[Tensor, Tensor]:
        if residual is None:
            residual = hidden_states
            hidden_states = first(hidden_states)
        else:
            hidden_states, residual = add_first(hidden_states, residual)
        hidden_states, residual = add_second(attend(positions, hidden_states), residual)
        return transform(hidden_states), residual

    return forward


def head_layer(layer: Any, is_last: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the forward of a layer of an EAGLE-3 or P-EAGLE head; its first one reads two inputs.

    Where ``drafting`` says which rows of the pass are sampled, the last layer computes only those, and the
    rows of its result that nobody reads are zero.
    """
    first, add_first = norms(layer.input_layernorm)
    hidden_norm, _ = norms(layer.hidden_norm)
    _, add_second = norms(layer.post_attention_layernorm)
    is_first = layer.layer_idx == 0
    attend, transform = attention(layer.self_attn, is_first, is_last), mlp(layer.mlp)
    name = layer.self_attn.attn.layer_name
    normed_residual = layer._residual_norm == layer._norm_before_residual

    def forward(
        positions: Tensor, embeds: Tensor, hidden_states: Tensor, residual: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if is_first:
            normed = hidden_norm(hidden_states)
            residual = normed if normed_residual else hidden_states
            hidden_states = torch.cat([first(embeds), normed], dim=-1)
        else:
            hidden_states, residual = add_first(hidden_states, residual)
        rows = rows_that_count(name) if is_last else None
        if rows is None:
            hidden_states, residual = add_second(attend(positions, hidden_states), residual)
            return transform(hidden_states), residual
        count = hidden_states.size(0)
        hidden_states, residual = add_second(attend(positions, hidden_states), residual[rows.sampled])
        return tuple(spread(part, rows.sampled, count) for part in (transform(hidden_states), residual))

    return forward


def rows_that_count(name: str) -> Any:
    """Return what ``drafting`` says of this pass through a layer, None where every row counts."""
    metadata = forward_context._forward_context.attn_metadata
    return getattr(metadata[name], "rows", None) if type(metadata) is dict else None


def spread(part: Tensor, places: Tensor, count: int) -> Tensor:
    """Return ``count`` rows, those at ``places`` from ``part`` and the others zero."""
    return part.new_zeros((count, part.size(1))).index_copy_(0, places, part)


def norms(module: RMSNorm) -> tuple[Linear, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]:
    """Return RMSNorm of x, and RMSNorm of the sum of x and the residual together with that sum.

    Both are vLLM's own for a CPU, operation by operation, so that greedy answers stay the same token for
    token: ``_C.fused_add_rms_norm`` would be ten times faster, and rounds elsewhere.
    """
    weight, epsilon = module.weight.data, module.variance_epsilon

    def scaled(x32: Tensor, dtype: torch.dtype) -> Tensor:
        inverse = x32.square().mean(-1, True).add_(epsilon).rsqrt_()
        return (x32 * inverse).to(weight.dtype).mul_(weight).to(dtype)

    def norm(x: Tensor) -> Tensor:
        return scaled(x.float(), x.dtype)

    def add_norm(x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        total = torch.add(x.float(), residual)
        return scaled(total, x.dtype), total.to(x.dtype)

    return norm, add_norm


def either(norm: Linear, add_norm: Any, x: Tensor, residual: Tensor | None = None) -> Any:
    """One of the two, as RMSNorm's own forward decides."""
    return norm(x) if residual is None else add_norm(x, residual)


def linear(module: Any) -> Linear:
    """Return the product with the module's weight, by the kernel that vLLM chose for it."""
    kernel, weight, bias = module.cpu_linear, module.weight, module.bias
    return lambda x: kernel(x, weight, bias)


def mlp(module: Any) -> Linear:
    """Return the layer's second half."""
    up, down = linear(module.gate_up_proj), linear(module.down_proj)

    def forward(x: Tensor) -> Tensor:
        gate, value = up(x).chunk(2, -1)
        return down(silu(gate).mul_(value))

    return forward


def attention(
    module: Any, is_first: bool = False, is_last: bool = False
) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the layer's first half, without the two opaque operators around each kernel.

    ``is_first`` and ``is_last``: of a draft head, whose rows may count differently (``drafting``).
    """
    qkv_of, out_of = linear(module.qkv_proj), linear(module.o_proj)
    layer, rotary = module.attn, module.rotary_emb
    impl, name = layer.impl, layer.layer_name
    heads, kv_heads, size = module.num_heads, module.num_kv_heads, module.head_dim
    parts = [module.q_size, module.kv_size, module.kv_size]
    rotate = torch.ops._C.rotary_embedding
    store = torch.ops._C.cpu_attn_reshape_and_cache
    attend = torch.ops._C.cpu_attention_with_kv_cache
    scales = (layer._k_scale_float, layer._v_scale_float, impl.kv_cache_dtype)
    caches = functools.lru_cache(maxsize=1)(split_cache)
    angles = functools.lru_cache(maxsize=1)(rotary_angles)

    def forward(positions: Tensor, x: Tensor) -> Tensor:
        rows = rows_that_count(name) if is_first or is_last else None
        if is_first and rows is not None and rows.source is not None:
            qkv = qkv_of(x[rows.distinct])[rows.source]
        else:
            qkv = qkv_of(x)
        q, k, v = qkv.split_with_sizes(parts, -1)
        rotate(positions, q, k, rotary.head_size, angles(rotary, q.dtype), rotary.is_neox_style)
        context = forward_context._forward_context
        if type(context.attn_metadata) is not dict:  # a trial run without requests
            return out_of(layer(q, k, v))
        meta, slots = context.attn_metadata[name], context.slot_mapping.get(name)
        keys, values = caches(layer.kv_cache)
        if slots is not None:
            k, v = k.view(-1, kv_heads, size), v.view(-1, kv_heads, size)
            store(k, v, keys, values, slots, layer.isa, *scales)
        if is_last and rows is not None:
            q, meta = q[rows.sampled], rows.meta
        # Room for padding is left as it is, like in vLLM: nobody reads it.
        out = q.new_empty((q.size(0), heads, size))
        used = meta.num_actual_tokens
        attend(
            q.view(-1, heads, size)[:used], keys, values, out[:used], meta.query_start_loc, meta.seq_lens,
            impl.scale, meta.causal, impl.alibi_slopes, impl.sliding_window, meta.block_table,
            impl.logits_soft_cap, meta.scheduler_metadata, impl.sinks, meta.dynamic_causal, *scales,
        )  # fmt: skip
        return out_of(out.view(-1, heads * size))

    return forward


def split_cache(cache: Tensor) -> tuple[Tensor, Tensor]:
    """Return the keys and the values of a layer's cache, as vLLM's attention views them."""
    blocks, heads, slots, _ = cache.size()
    keys, values = cache.view(blocks, heads, slots * 2, -1).chunk(2, dim=2)
    return keys, values


def rotary_angles(rotary: Any, dtype: torch.dtype) -> Tensor:
    """Return the rotary embedding's cosines and sines in the type of the queries."""
    return rotary._match_cos_sin_cache_dtype(torch.empty(0, dtype=dtype))
