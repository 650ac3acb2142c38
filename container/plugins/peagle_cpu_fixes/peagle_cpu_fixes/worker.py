"""The changes of the worker's process alone: they need imports that the API server can do without."""

from typing import Any

from vllm.v1.worker.worker_base import WorkerWrapperBase


def hook() -> None:
    """Install them where a worker begins, before it has a model."""
    original = WorkerWrapperBase.init_worker
    if getattr(original, "by_peagle", False):
        return

    def init_worker(self: Any, *args: Any, **kwargs: Any) -> None:
        from . import drafting, kernels

        kernels.install()
        drafting.install()
        straighten_after_loading()
        original(self, *args, **kwargs)

    init_worker.by_peagle = True  # type: ignore[attr-defined]
    WorkerWrapperBase.init_worker = init_worker


def straighten_after_loading() -> None:
    """Let the model runner straighten the layers of the target and of the draft head once they are loaded."""
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    from .layers import straighten

    original = CPUModelRunner.load_model
    if getattr(original, "by_peagle", False):
        return

    def load_model(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        straighten(self.model, self.vllm_config)
        head = getattr(getattr(self, "drafter", None), "model", None)
        if head is not None:
            straighten(head, self.vllm_config)

    load_model.by_peagle = True  # type: ignore[attr-defined]
    CPUModelRunner.load_model = load_model
