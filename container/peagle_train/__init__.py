"""The training job in SageMaker's container, with NVIDIA NeMo AutoModel's P-EAGLE recipe.

``python -m peagle_train train`` reads the folders that SageMaker fills below ``/opt/ml``, trains a head for
the target, and writes it in the layout that vLLM serves. The library trains; this package adds the data, the
checkpoints for spot interruptions, the head's two layouts, and error messages.

Only `recipe`, `masters` and `on_cpu` import torch, so the user's mistakes are reported before anything large
is loaded. `job` is the start: it calls `plan` for all checks, then `recipe`.
"""


class Mistake(Exception):
    """Error: the user's input is invalid; the message is one line for the user."""
