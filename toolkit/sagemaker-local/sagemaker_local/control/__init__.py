"""The control plane of the local SageMaker: records, statuses that follow real engines, AWS's wording."""

from .capacity import Stock
from .engines import Timing
from .errors import ApiError, NoCapacity
from .plane import ControlPlane
from .records import Event, OnEvent
from .routing import Route

__all__ = [
    "ApiError",
    "ControlPlane",
    "Event",
    "NoCapacity",
    "OnEvent",
    "Route",
    "Stock",
    "Timing",
]
