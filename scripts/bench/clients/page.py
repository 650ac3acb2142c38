"""docs/reference/clients-bench.md out of the readings of `scripts/bench-clients`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from scripts.bench.clients.run import Reading

OTPS_WITHIN = 0.01
ITL_WITHIN = 0.10
CPU_US = 20.0


def page(
    readings: Sequence[Reading],
    *,
    floors: Mapping[int, Sequence[float]],
    versions: Mapping[str, str],
    machine: Mapping[str, Any],
    load: tuple[float, float],
    gap_ms: float,
    command: str,
) -> str:
    """The whole page; each figure is the median of its rounds."""
    clients = list(dict.fromkeys(reading.client for reading in readings))
    levels = sorted({reading.concurrency for reading in readings})
    rounds = len(readings) // max(len(clients) * len(levels), 1)
    told = ", ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        "# Load clients side by side",
        "",
        f"Written by `{command.strip()}`: {rounds} rounds, medians of them; {machine['cores']} cores of"
        f" {machine['processor']}, load average {load[0]:.1f} before and {load[1]:.1f} after; {told}.",
        "",
        f"The server (`toolkit/peagle-bench/tests/bench/scheduled_server.py`) sends one token a stream every {gap_ms:g} ms, in"
        " steps as an engine does, and ends each answer after 65 to 128 tokens. It notes when it wrote each"
        " chunk: that is the truth in this table. OTPS is held against the tokens that the server wrote in"
        " the same time: for ours the measured window, for the others from the first request to the last"
        " chunk, as they count. Server and client share the cores; 'load' is what wanted them beside.",
        "",
        "CPU a chunk is that of the whole process, requests included. 'Floor' is a client on the same event"
        " loop that does nothing but count what its sockets give it: waking up costs that much here.",
        "",
        "| c | client | OTPS | server | off by | ITL p99, ms | true | off by | TTFT p99, ms | true"
        " | CPU us/chunk | floor | load |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for level in levels:
        floor = median(floors[level])
        lines += [_row(level, client, _of(readings, client, level), floor) for client in clients]
    lines += ["", "## What must hold", ""]
    lines += _verdicts(readings, clients, levels)
    return "\n".join(lines) + "\n"


def _of(readings: Sequence[Reading], client: str, level: int) -> list[Reading]:
    return [reading for reading in readings if (reading.client, reading.concurrency) == (client, level)]


def _row(level: int, client: str, found: Sequence[Reading], floor: float) -> str:
    cpu = [reading.said.cpu_us_per_chunk for reading in found]
    cells = [
        str(level),
        client,
        f"{median(r.said.otps for r in found):,.1f}",
        f"{median(r.otps for r in found):,.1f}",
        f"{median(r.otps_error for r in found):+.2%}",
        f"{median(r.said.itl_p99_ms for r in found):.1f}",
        f"{median(r.itl_p99_ms for r in found):.1f}",
        f"{median(r.itl_error for r in found):+.1%}",
        f"{median(r.said.ttft_p99_ms for r in found):.0f}",
        f"{median(r.ttft_p99_ms for r in found):.0f}",
        "-" if None in cpu else f"{median(one for one in cpu if one is not None):.1f}",
        "-" if None in cpu else f"{floor:.1f}",
        f"{median(r.load for r in found):.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _verdicts(readings: Sequence[Reading], clients: Sequence[str], levels: Sequence[int]) -> list[str]:
    lines = []
    for client in (name for name in clients if name.startswith("ours")):
        for level in levels:
            found = _of(readings, client, level)
            otps = median(abs(reading.otps_error) for reading in found)
            itl = median(abs(reading.itl_error) for reading in found)
            cpu = median(reading.said.cpu_us_per_chunk or 0.0 for reading in found)
            vllm = _of(readings, "vllm bench serve", level)
            parts = [
                _holds(otps <= OTPS_WITHIN, f"OTPS off by {otps:.2%} (at most {OTPS_WITHIN:.0%})"),
                _holds(itl <= ITL_WITHIN, f"ITL p99 off by {itl:.1%} (at most {ITL_WITHIN:.0%})"),
                _holds(cpu <= CPU_US, f"{cpu:.1f} us of CPU a chunk (at most {CPU_US:g})"),
            ]
            if vllm:
                theirs = median(abs(reading.itl_error) for reading in vllm)
                parts.append(_holds(itl <= theirs, f"no worse than `vllm bench serve` ({theirs:.1%})"))
            lines.append(f"- {client}, c={level}: " + "; ".join(parts))
    return lines


def _holds(held: bool, words: str) -> str:
    return words if held else f"**does not hold:** {words}"
