"""Attention that copies from where the text stood before: planted in a P-EAGLE head, then trained.

Code repeats itself. EAGLE-3 drafts a repetition token by token; a mask slot cannot, because it does not see
the tokens between its anchor and itself. But it can know them: if the text before the anchor stood somewhere
before, what followed there is the draft. Three parts make that in two layers:

- **Offset heads** (first layer) look exactly i slots back, i = 1 to 10, and write a short code of the token
  found there into directions of the stream that the output matrix hardly reads. At depth d the slots less
  than d back are mask slots, whose code is zero: so the code of slot i back, for i >= d, is the anchor's
  context, shifted by d.
- **Match heads** (second layer) compare these codes: the query of a mask slot is most like the key of the
  slot d behind the end of an earlier occurrence of the anchor's context. Only slow rotary pairs are used,
  since distance must not matter. They copy that slot's whole state, which already predicts its next token.
- A **mark** on mask slots (one direction of the stream) keeps them from matching themselves.

It is only a start: every weight trains on.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from speculators.models.peagle.core import PEagleDraftModel

from scripts.train_tiny.planting.slots import Rollout, entering, leaving_first_layer, real_and_mask

WIDTH = 64  #: of a head
FIRST_GROUP, OFFSETS, CODE = 2, 10, 3  #: key/value heads 2 to 6 of layer 0: one offset a query head
MATCH_GROUPS = (2, 3, 4, 5)  #: of layer 1; each copies a quarter of the state
SHARPNESS = 7.5  #: of the offset heads: about 0.8 of their attention falls on the slot meant
FAST_PAIRS = 12  #: rotary pairs that tell one slot from the next
FIRST_SLOW_PAIR, MARK_PAIR = 15, 31  #: of 32; 15 to 29 hardly turn within 200 slots
MATCH_SCALE, MARK_SCALE, COPY_GAIN = 3.0, 11.0, 2.0
MARK, MARK_INPUT = (
    4.4,
    12.0,
)  #: of mask slots: in the stream (times its mean square root), and in their own input
RIDGE = 1e-3


@dataclass(frozen=True)
class Directions:
    """Directions of the stream, each [H]: for codes [H, OFFSETS * CODE], and for the mark."""

    codes: torch.Tensor
    mark: torch.Tensor

    def without(self) -> torch.Tensor:
        """The projection [H, H] that removes them."""
        taken = torch.cat([self.codes, self.mark[:, None]], 1)
        return torch.eye(len(taken)) - taken @ taken.T


def quiet_directions(model: PEagleDraftModel, stream: torch.Tensor) -> Directions:
    """Directions in which the stream [slots, H] hardly varies and which the output matrix hardly reads."""
    used = stream.T @ stream / len(stream)
    read = model.lm_head.weight * model.norm.weight[None]
    heard = read.T @ read
    vectors = torch.linalg.eigh(used / used.trace() + heard / heard.trace())[1]
    return Directions(codes=vectors[:, 1 : 1 + OFFSETS * CODE], mark=vectors[:, 0])


class Planter:
    """Plants the three parts into a head of two layers with 16 query and 8 key/value heads of 64."""

    def __init__(self, model: PEagleDraftModel, rollouts: list[Rollout], generator: torch.Generator) -> None:
        """Look at what flows through the head as it is."""
        self.model, self.rollouts, self.generator = model, rollouts, generator
        self.states = torch.cat([r.states for r in rollouts])
        self.tokens = torch.cat([r.tokens for r in rollouts])
        real, mask = leaving_first_layer(model, rollouts)
        self.size = real.pow(2).mean().sqrt()
        self.quiet = quiet_directions(model, torch.cat([real, mask]))
        self.others = self.quiet.without()

    def plant(self) -> None:
        """Plant the heads in place; the mask slots must be marked."""
        self._clear_first_layer()
        self._offset_heads()
        self._match_heads()

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator)

    def mark_mask_slots(self) -> None:
        """Put the mark into the mask slots' input, along a direction in which real inputs are still."""
        fc, mask_hidden = self.model.fc.weight, self.model.mask_hidden
        centred = self.states - self.states.mean(0)
        still = torch.linalg.eigh(centred.T @ centred)[1][:, 0]
        mark = self.quiet.mark
        kept = fc - torch.outer(mark, mark @ fc)
        fc.copy_(
            kept - torch.outer(kept @ still, still) + torch.outer(mark, still) * self.size * MARK / MARK_INPUT
        )
        plain = mask_hidden.view(-1)
        mask_hidden.copy_((plain - (plain @ still) * still + MARK_INPUT * still).view_as(mask_hidden))

    def _clear_first_layer(self) -> None:
        """Nothing else in the first layer writes the mark, and its MLP does not read the codes."""
        layer, mark = self.model.layers[0], self.quiet.mark
        for matrix in (layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight):
            matrix.sub_(torch.outer(mark, mark @ matrix))
        norm = layer.post_attention_layernorm.weight
        for matrix in (layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight):
            matrix.copy_((matrix * norm) @ self.others / norm)

    def _codes_of_tokens(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The embedding as read [V, H], its mean [H], and the whitening [H, H] over the tokens in use."""
        embedded = self.model.layers[0].input_layernorm(self.model.embed_tokens.weight)
        weight = (torch.bincount(self.tokens, minlength=len(embedded)).float() + 1).sqrt()
        weight /= weight.sum()
        mean = (weight[:, None] * embedded).sum(0)
        spread = ((embedded - mean) * weight[:, None]).T @ (embedded - mean)
        values, vectors = torch.linalg.eigh(
            spread + RIDGE * spread.trace() / len(spread) * torch.eye(len(spread))
        )
        return embedded, mean, vectors @ torch.diag(values.rsqrt()) @ vectors.T

    def _offset_heads(self) -> None:
        model, attention = self.model, self.model.layers[0].self_attn
        inputs = entering(model.layers[0], model.embed_tokens(self.tokens), model.fc(self.states))
        mask_id = torch.tensor([model.mask_token_id])
        mask = entering(model.layers[0], model.embed_tokens(mask_id), model.fc(model.mask_hidden.view(1, -1)))
        is_real, is_mask = real_and_mask(inputs, mask.expand(len(inputs) // 2, -1), RIDGE)
        constant = is_real + is_mask
        embedded, mean, whitening = self._codes_of_tokens()
        turn = model.config.transformer_layer_config.rope_parameters["rope_theta"] ** (
            -torch.arange(0, WIDTH, 2).float() / WIDTH
        )
        hidden = len(mean)
        for offset in range(1, OFFSETS + 1):
            group, half = FIRST_GROUP + (offset - 1) // 2, (offset - 1) % 2
            key, query = group * WIDTH, (2 * group + half) * WIDTH
            angle = turn[:FAST_PAIRS] * offset
            attention.k_proj.weight[key : key + FAST_PAIRS] = SHARPNESS * constant
            attention.q_proj.weight[query : query + WIDTH] = 0
            attention.q_proj.weight[query : query + FAST_PAIRS] = SHARPNESS * torch.outer(
                angle.cos(), constant
            )
            sine = slice(query + WIDTH // 2, query + WIDTH // 2 + FAST_PAIRS)
            attention.q_proj.weight[sine] = -SHARPNESS * torch.outer(angle.sin(), constant)
            sketch = torch.linalg.qr(self._random(hidden, CODE))[0].T @ whitening
            value = torch.zeros(CODE, 2 * hidden)
            value[:, :hidden] = sketch
            # Centred on real slots, and zero on mask slots.
            value -= torch.outer(sketch @ mean, is_real)
            value -= torch.outer(sketch @ embedded[model.mask_token_id], is_mask)
            attention.v_proj.weight[key + half * CODE : key + half * CODE + CODE] = value
            written = self.size * self.quiet.codes[:, (offset - 1) * CODE : offset * CODE]
            attention.o_proj.weight[:, query : query + WIDTH] = 0
            attention.o_proj.weight[:, query + half * CODE : query + half * CODE + CODE] = written

    def _match_heads(self) -> None:
        second = self.model.layers[1]
        attention, norm = second.self_attn, second.input_layernorm.weight

        def plain(stream: torch.Tensor) -> torch.Tensor:
            return stream / stream.pow(2).mean(-1, keepdim=True).sqrt() @ self.others

        real, mask = leaving_first_layer(self.model, self.rollouts)
        reads = real_and_mask(plain(real), plain(mask), RIDGE)
        constant = self.others @ (reads[0] + reads[1]) / norm
        codes = MATCH_SCALE * self.quiet.codes.T / norm
        pairs = codes.shape[0] // 2
        gain = COPY_GAIN * self.size
        for quarter, group in enumerate(MATCH_GROUPS):
            key, query = group * WIDTH, 2 * group * WIDTH
            for matrix, start in ((attention.q_proj.weight, query), (attention.k_proj.weight, key)):
                matrix[start : start + WIDTH] = 0
                slow = start + FIRST_SLOW_PAIR
                matrix[slow : slow + pairs] = codes[:pairs]
                matrix[slow + WIDTH // 2 : slow + WIDTH // 2 + pairs] = codes[pairs:]
            attention.q_proj.weight[query + MARK_PAIR] = MARK_SCALE * constant
            attention.k_proj.weight[key + MARK_PAIR] = -MARK_SCALE * self.quiet.mark / norm
            copied = slice(quarter * WIDTH, (quarter + 1) * WIDTH)
            attention.v_proj.weight[key : key + WIDTH] = torch.diag(1 / norm)[copied]
            attention.o_proj.weight[:, query : query + WIDTH] = 0
            attention.o_proj.weight[copied, query : query + WIDTH] = gain * torch.eye(WIDTH)


def check_shape(model: PEagleDraftModel) -> None:
    """Refuse a head of another shape than the constants of this module mean.

    Raises:
        ValueError: not two layers of 16 query and 8 key/value heads of 64, hidden size 256.
    """
    shape = model.config.transformer_layer_config
    sizes = (len(model.layers), shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim)
    if sizes != (2, 16, 8, WIDTH) or shape.hidden_size != WIDTH * len(MATCH_GROUPS):
        raise ValueError(f"found layers, heads, key/value heads, width {sizes}; allowed: (2, 16, 8, {WIDTH})")
