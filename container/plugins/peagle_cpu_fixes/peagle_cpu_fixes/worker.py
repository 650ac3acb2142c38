"""The changes of the worker's process alone: they need imports that the API server can do without."""

from typing import Any

from vllm.platforms.cpu import CpuPlatform


def hook() -> None:
    """Install them where a worker registers its platform's kernels, before it has a model."""
    original = CpuPlatform.register_triton_kernel_overrides.__func__
    if getattr(original, "by_peagle", False):
        return

    def register_kernels(cls: Any) -> None:
        original(cls)
        from . import kernels

        kernels.install()
        straighten_after_loading()

    register_kernels.by_peagle = True  # type: ignore[attr-defined]
    CpuPlatform.register_triton_kernel_overrides = classmethod(register_kernels)


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
