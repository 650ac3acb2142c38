"""How many instances of a type there are: AWS runs out of them, and here a test may make them short."""

from collections.abc import Mapping
from typing import Any

from .engines import StartupFailed

# As SageMaker writes it (aws/deep-learning-containers#6673).
SHORT = (
    "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity error. "
    "Please retry using a different ML instance type."
)


class Stock:
    """Instance types that are short; all others never are."""

    def __init__(self) -> None:
        self._left: dict[str, int] = {}

    def set(self, instance_type: str, instances: int | None) -> None:
        """Let there be so many instances of the type for each endpoint; None: as many as it likes."""
        self._left.pop(instance_type, None)
        if instances is not None:
            self._left[instance_type] = instances

    def to_dict(self) -> dict[str, int]:
        """Return what is short."""
        return dict(self._left)

    def place(self, config: Mapping[str, Any]) -> dict[str, str]:
        """Return the instance type that each variant gets: of several pools the first that is not short.

        Raises:
            StartupFailed: every type of a variant is short.
        """
        return {variant["VariantName"]: self._of(variant) for variant in config["ProductionVariants"]}

    def _of(self, variant: Mapping[str, Any]) -> str:
        pools = sorted(variant.get("InstancePools", []), key=lambda pool: int(pool.get("Priority", 1)))
        types = [str(pool["InstanceType"]) for pool in pools] or [str(variant.get("InstanceType", ""))]
        wanted = int(variant.get("InitialInstanceCount", 1))
        for name in types:
            if self._left.get(name, wanted) >= wanted:
                return name
        raise StartupFailed(SHORT)
