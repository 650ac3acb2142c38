"""Float32 master weights of a head that is computed in bfloat16.

AdamW moves a weight by about the learning rate, and bfloat16 has 8 significant bits: at a rate of 1e-4, the
steps of a weight above 0.03 are rounded away. So what is trained, summed over processes and saved is float32.
Each use of a parameter is a rounded copy, so the forward and backward pass are the library's in bfloat16.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize


class Rounded(nn.Module):
    """A parameter's copy in another dtype; its gradient goes back to the parameter in float32."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype

    def forward(self, master: Any) -> Any:
        """Return the copy."""
        return master.to(self.dtype)


def compute_in(dtype: torch.dtype, model: nn.Module) -> None:
    """Let every use of a parameter of ``model`` be a copy in ``dtype``; parameters that have it stay plain.

    A parametrization and not autocast, which would keep embeddings and norms in float32: other values and
    more memory than the library's own. Copies for one forward pass would not do, since gradient checkpointing
    reads the weights again in the backward pass.
    """
    for module in list(model.modules()):
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.dtype != dtype:
                parametrize.register_parametrization(module, name, Rounded(dtype), unsafe=True)


def state_of(model: nn.Module) -> dict[str, Any]:
    """Return the state with the masters, under the names that the plain model has."""
    return {_plain(name): value for name, value in model.state_dict().items()}


def load_state(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Load what `state_of` returned."""
    model.load_state_dict({name: state[_plain(name)] for name in model.state_dict()})


def _plain(name: str) -> str:
    return name.replace("parametrizations.", "", 1).removesuffix(".original")
