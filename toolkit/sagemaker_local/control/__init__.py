"""The control plane of the local SageMaker: records, statuses that follow real engines, AWS's wording."""

from .errors import ApiError, NoCapacity
from .events import Event, OnEvent
from .plane import ControlPlane
from .routing import Route
from .settings import Timing
from .stock import Stock

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
