"""Count of drafts and accepted tokens by slice, from the answers that pass through the gate.

vLLM (0.29 and later) reports a request's drafts in its answer, in a stream only with its usage. So the gate
requests the usage of each stream, and removes that event again if the caller did not request it. It searches
the bytes only for a mark that no text of an answer can contain, since quotes are escaped there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from peagle_gate.drift import AcceptanceFall, Stratum, Sums
from peagle_gate.embedded_metrics import COUNT, PERCENT, metrics_line
from peagle_gate.slice_values import (
    LABEL_HEADER,
    OTHER,
    Chosen,
    labels_of_header,
    slices_of_answer,
    slices_of_body,
)

DRIFTING = "DriftingSlices"
LARGEST_FALL = "LargestFallPercent"
UNCOUNTED = "UncountedRequests"
SLICE_ACCEPTED = "SliceAcceptedTokens"
SLICE_DRAFTS = "SliceDrafts"
#: The dimension of the two metrics of a listed slice.
SLICE = "Slice"
#: Member of the log line with the counts of its interval.
COUNTS, DIMENSIONS, CHANGES, SINCE = "counts", "dimensions", "changes", "since"
MOST_STRATA = 200  #: further ones count as OTHER in each dimension

_REPORT = b'"speculative_decoding":'
_USAGE = b'"usage":'
_NO_CHOICES = b'"choices":[]'
_DECODER = json.JSONDecoder()


class SliceCounter:
    """Counter of one server process; `take` returns what came since the last call."""

    def __init__(self, chosen: Sequence[Chosen], *, usage_is_forced: bool = False) -> None:
        """``usage_is_forced``: the engine sends each caller the usage of a stream."""
        self.chosen = tuple(chosen)
        self.dimensions = tuple(chosen.dimension for chosen in self.chosen)
        self._forced = usage_is_forced
        self._seen: tuple[set[str], ...] = tuple(set() for _ in self.chosen)
        self._strata: set[Stratum] = set()
        self._counts: dict[Stratum, Sums] = {}
        self._uncounted = 0

    def follow(self, request: Mapping[str, Any], headers: Sequence[tuple[bytes, bytes]]) -> Following:
        """Return what reads the answer to a request."""
        text = next((value for name, value in headers if name.lower() == LABEL_HEADER.encode()), b"")
        labels = labels_of_header(text.decode("latin-1"))
        options = request.get("stream_options")
        has_usage = isinstance(options, Mapping) and options.get("include_usage") is True
        added = request.get("stream") is True and not has_usage and not self._forced
        slices = slices_of_body(request, labels, script="script" in self.dimensions)
        return Following(self, slices, options if added else None, added=added)

    def count(self, slices: Mapping[str, str], report: Mapping[str, Any], usage: Mapping[str, Any]) -> None:
        """Count a request by its slices, the engine's report and its usage."""
        drafts, accepted = report.get("num_spec_steps"), report.get("num_accepted_draft_tokens")
        drafted = report.get("num_draft_tokens")
        if not (isinstance(drafts, int) and isinstance(accepted, int) and isinstance(drafted, int)):
            self._uncounted += 1
            return
        if drafts <= 0:
            return  # a single token, or a K of 0: there is nothing to accept
        all_slices = {**slices, **slices_of_answer(usage)}
        values = tuple(
            chosen.value(all_slices, seen) for chosen, seen in zip(self.chosen, self._seen, strict=True)
        )
        stratum = (values, round(drafted / drafts))
        if stratum not in self._strata:
            if len(self._strata) >= MOST_STRATA:
                stratum = ((OTHER,) * len(values), stratum[1])
            self._strata.add(stratum)
        self._counts.setdefault(stratum, Sums()).add(Sums.of_request(drafts, accepted))

    def lost(self) -> None:
        """Count an answer that has no report: cancelled, or with several sequences."""
        self._uncounted += 1

    def take(self) -> tuple[dict[Stratum, Sums], int]:
        """Return the counts and the uncounted requests since the last call."""
        counts, uncounted = self._counts, self._uncounted
        self._counts, self._uncounted = {}, 0
        return counts, uncounted


class Following:
    """Reader of one answer, event by event or whole."""

    def __init__(self, counter: SliceCounter, slices: dict[str, str], options: Any, *, added: bool) -> None:
        """``added``: only the gate requested the usage, so its event is not passed on."""
        self._counter = counter
        self._slices = slices
        self._options = options
        self._added = added
        self._ok = False
        self._done = False

    def body(self, body: bytes) -> bytes:
        """Return the body with a request for the usage; of two equal keys, JSON's reader uses the last."""
        if not self._added or json.detect_encoding(body) != "utf-8":
            self._added = False
            return body
        own = self._options if isinstance(self._options, Mapping) else {}
        wanted = {**own, "include_usage": True, "continuous_usage_stats": False}
        return b"".join(
            [body.rstrip()[:-1], b',"stream_options":', json.dumps(wanted).encode(), b"}"],
        )

    def started(self, status: int) -> None:
        """Note the answer's status."""
        self._ok = status == 200

    def part(self, content: bytes) -> bytes:
        """Read a part of the answer, and return what the caller gets of it."""
        if _REPORT in content:
            self._report(content)
        if self._added and _NO_CHOICES in content:
            events = content.split(b"\n\n")
            return b"\n\n".join(event for event in events if not (_NO_CHOICES in event and _USAGE in event))
        return content

    def ended(self) -> None:
        """Note the end, whole or not."""
        if self._ok and not self._done:
            self._counter.lost()

    def _report(self, content: bytes) -> None:
        report = _object_after(content, _REPORT)
        if report is not None:
            self._done = True
            self._counter.count(self._slices, report, _object_after(content, _USAGE) or {})


def _object_after(content: bytes, mark: bytes) -> Mapping[str, Any] | None:
    """Return the JSON object after a mark's last place; None if there is no whole one."""
    place = content.rfind(mark)
    if place < 0:
        return None
    try:
        document, _ = _DECODER.raw_decode(content[place + len(mark) :].decode(errors="replace").lstrip())
    except ValueError:
        return None
    return document if isinstance(document, Mapping) else None


def log_lines(
    counter: SliceCounter,
    counts: Mapping[Stratum, Sums],
    uncounted: int,
    changes: Sequence[AcceptanceFall],
    *,
    namespace: str,
    since: float,
    unix_ms: int,
) -> list[str]:
    """Return the log lines of an interval: one, and one for each listed slice.

    The first has the counts of all strata beside its metrics, which `peagle-sm acceptance` reads.
    """
    largest = max((change.fall for change in changes), default=0.0)
    lines = [
        metrics_line(
            {
                DRIFTING: (len(changes), COUNT),
                LARGEST_FALL: (round(100 * largest, 2), PERCENT),
                UNCOUNTED: (uncounted, COUNT),
            },
            {
                SINCE: round(since, 3),
                DIMENSIONS: list(counter.dimensions),
                COUNTS: [[list(values), k, *sums.to_list()] for (values, k), sums in counts.items()],
                CHANGES: [
                    {"slice": fall.slice, "since": round(fall.since, 3), "fall": round(fall.fall, 4)}
                    for fall in changes
                ],
            },
            namespace=namespace,
            unix_ms=unix_ms,
        )
    ]
    for place, dimension in enumerate(counter.chosen):
        for value, name in zip(dimension.listed, dimension.slices, strict=True):
            rows = [sums for (values, _), sums in counts.items() if values[place] == value]
            if rows:
                metrics = {
                    SLICE_ACCEPTED: (round(sum(row.accepted for row in rows)), COUNT),
                    SLICE_DRAFTS: (round(sum(row.drafts for row in rows)), COUNT),
                }
                lines.append(
                    metrics_line(
                        metrics, {SLICE: name}, namespace=namespace, unix_ms=unix_ms, dimensions=[SLICE]
                    )
                )
    return lines
