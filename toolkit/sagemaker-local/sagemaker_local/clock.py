"""The local clock: one source of "now" for creation times, metrics, schedules and start-up limits."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta


def _wall_clock() -> datetime:
    return datetime.now(UTC)


class LocalClock:
    """Real time plus the time that the clock was moved forward.

    Moving it forward is how a lifetime of hours is tried in seconds; it never goes back, because AWS's
    records would then be younger than what followed them.
    """

    def __init__(self, wall: Callable[[], datetime] = _wall_clock) -> None:
        self._wall = wall
        self._ahead = timedelta()
        self._before: list[tuple[datetime, timedelta]] = []

    def now(self) -> datetime:
        """The local time, aware, in UTC."""
        return self._wall().astimezone(UTC) + self._ahead

    @property
    def ahead_seconds(self) -> float:
        """Offset of the local clock from real time, in seconds."""
        return self._ahead.total_seconds()

    def advance(self, seconds: float) -> datetime:
        """Move the clock forward and return the new time.

        Raises:
            ValueError: `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError(f"the local clock only goes forward: found {seconds} s; allowed: 0 or more")
        self._before.append((self._wall().astimezone(UTC), self._ahead))
        self._ahead += timedelta(seconds=seconds)
        return self.now()

    def local_time_of(self, real: datetime) -> datetime:
        """Convert a real time to local time, for example the time stamp of a token."""
        ahead = next((ahead for until, ahead in self._before if real < until), self._ahead)
        return real.astimezone(UTC) + ahead
