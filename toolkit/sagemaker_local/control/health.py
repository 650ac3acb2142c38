"""When an engine in service counts as dead although its process runs. Pure: the time is told to it."""

from .settings import Timing


class Health:
    """What the pings of one engine say.

    A ping that is refused, or answered by anything but 200, fails fast and means a broken engine. One that
    runs into its time limit may only mean a busy machine, so it takes far longer to condemn an engine.
    """

    def __init__(self, timing: Timing, now: float) -> None:
        self._timing = timing
        self._healthy_at = now
        self._refused = 0

    def pinged(self, healthy: bool, took_s: float, now: float) -> str | None:
        """Takes one ping's outcome; the answer says how the engine died, None while it lives."""
        if healthy:
            self._healthy_at, self._refused = now, 0
            return None
        self._refused = self._refused + 1 if took_s < self._timing.fast_ping_s else 0
        failing = now - self._healthy_at
        broken = self._refused >= self._timing.unhealthy_pings and failing >= self._timing.unhealthy_after_s
        if broken or failing >= self._timing.silent_after_s:
            return f"failed every /ping for {failing:.0f} s"
        return None
