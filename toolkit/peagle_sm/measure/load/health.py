"""Whether the client kept up, so that what it measured is the endpoint's. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from peagle_sm.measure.load.work import ClientUsage
from peagle_sm.measure.ranks import quantile
from peagle_sm.measure.records import ClientHealth


@dataclass(frozen=True)
class Limits:
    """From where on the client is the bottleneck; by its lag alone its latencies are in doubt, nothing else.

    ``cpu_share``: of one core, on which the client's one thread runs. ``lag_share``: of the ITL's 99th
    percentile. A lag moves that by about a quarter of itself (measured on a busy machine: a late chunk makes
    one gap longer and the next one shorter), so 0.3 keeps it within 10% of the truth. ``lag_floor_ms``: below
    it nobody would notice. ``late_share``: of the requests' own time, spent between a place being free (or
    an arrival being due) and the request being sent: that much less load was there than was asked for.
    """

    cpu_share: float = 0.9
    lag_share: float = 0.3
    lag_floor_ms: float = 2.0
    late_share: float = 0.03


def health(
    usage: ClientUsage,
    *,
    seconds: float,
    chunks: int,
    itl_p99_ms: float | None,
    late_share: float = 0.0,
    limits: Limits | None = None,
) -> ClientHealth:
    """Judge a window of ``seconds`` in which ``chunks`` chunks arrived."""
    limits = limits or Limits()
    lag = quantile(sorted(usage.lags_ms), 0.99) if usage.lags_ms else None
    share = usage.cpu_s / seconds if seconds > 0 else 0.0
    allowed = max(limits.lag_floor_ms, limits.lag_share * (itl_p99_ms or 0.0))
    bottleneck, reason = True, None
    if share > limits.cpu_share:
        reason = f"the client was busy {share:.0%} of the time (allowed: {limits.cpu_share:.0%})"
    elif usage.connections_full:
        reason = "requests waited for one of the client's own connections"
    elif late_share > limits.late_share:
        reason = (
            f"requests were sent late by {late_share:.1%} of their time (allowed: {limits.late_share:.0%})"
        )
    else:
        bottleneck = False
        if lag is not None and lag > allowed:
            reason = f"the client came {lag:.1f} ms late at the 99th percentile (allowed: {allowed:.1f} ms)"
    per_chunk = usage.cpu_s / chunks * 1e6 if chunks else None
    return ClientHealth(reason is None, reason, lag, share, per_chunk, bottleneck)
