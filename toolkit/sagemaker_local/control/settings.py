"""How often the control plane looks, and how long it waits."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Seconds, all of them real time.

    Attributes:
        poll_s: between two looks at an engine that starts.
        watch_s: between two looks at the process of an engine that serves.
        ping_s: between two pings of an engine that serves; engines log each ping.
        unhealthy_after_s: an engine that runs but refuses every ping for so long counts as dead. With
            watch_s and ping_s it stays below the 10 s in which a dead engine must be noticed.
        unhealthy_pings: and at least so many pings in a row must have been refused.
        fast_ping_s: a failed ping that took longer was not refused; it may be the machine that is busy.
        silent_after_s: an engine that answers no ping for so long counts as dead, busy machine or not.
        rolling_back_s: how long RollingBack is to be seen at least.
        deleting_s: how long Deleting is to be seen at least.
        drain_s: how long an engine that an update replaces may finish what it is serving; AWS lets a
            response stream last 8 minutes.
        max_restarts: engines that die are started again so often, OutOfService meanwhile. AWS replaces the
            instance; here 0 is the default, since a silent restart would spoil a measurement.
    """

    poll_s: float = 0.25
    watch_s: float = 0.5
    ping_s: float = 1.5
    unhealthy_after_s: float = 6.0
    unhealthy_pings: int = 3
    fast_ping_s: float = 1.0
    silent_after_s: float = 60.0
    rolling_back_s: float = 1.0
    deleting_s: float = 0.5
    drain_s: float = 480.0
    max_restarts: int = 0
