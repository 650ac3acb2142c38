"""Application Auto Scaling for SageMaker: moto knows the dimension of variants, not that of components."""

from __future__ import annotations

from typing import Any

COPIES = "sagemaker:inference-component:DesiredCopyCount"


class _Dimension:
    """Stands beside the members of moto's enumeration, of which only the value is read."""

    value = COPIES


def know_inference_components() -> None:
    """Make moto keep scalable targets and policies of `inference-component/<name>`; safe to call twice.

    Targets and policies are kept and described. Nothing here acts on them: copies change when they are
    told to.
    """
    from moto.applicationautoscaling import models, responses

    known: list[Any] = [each for each in models.ScalableDimensionValueSet if each.value != COPIES]
    for module in (models, responses):
        module.ScalableDimensionValueSet = [*known, _Dimension()]
