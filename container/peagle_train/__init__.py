"""The training job in SageMaker's container: NVIDIA NeMo AutoModel's P-EAGLE recipe, on SageMaker's terms.

``python -m peagle_train train`` reads the folders that SageMaker fills below ``/opt/ml``, trains a head for
the target that lies there, and leaves it in the layout that vLLM serves. The library trains; this package
brings the data, the checkpoints that a spot interruption needs, the head's two layouts, and messages.

All but `recipe` and `on_cpu` imports without torch: what a user got wrong is found before anything large is
loaded.
"""


class Mistake(Exception):
    """Error: the job cannot run as it was asked to; the message is for the user, in one line."""
