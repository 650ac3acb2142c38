"""How often the intervals of `compare` hold the truth, as the table of docs/how-to/measure.md.

``python -m tests.bench.compare.coverage`` prints it.
"""

from __future__ import annotations

import math

from tests.bench.compare.test_coverage import ONE_DEPLOYMENT, SEVERAL, intervals

TRIALS = 1000


def main() -> None:
    """Simulate every world, and print a row for each."""
    print(
        "| prompts | their lengths | speed-ups | deployments | their speeds | holds the truth | half width |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for world in (*ONE_DEPLOYMENT, *SEVERAL):
        result = intervals(world, TRIALS)
        share = sum(row.low <= world.truth <= row.high for row in result) / TRIALS
        half = math.fsum(math.log(row.high / row.low) / 2 for row in result) / TRIALS
        print(
            f"| {world.prompts} | {world.over_lengths:.0%} | {world.over_prompts:.0%} | {world.deployments} "
            f"| {world.over_deployments:.0%} | {share:.1%} | +-{half:.1%} |"
        )


if __name__ == "__main__":
    main()
