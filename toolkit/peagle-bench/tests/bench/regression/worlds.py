"""Runs of which the truth is known, as results files have them: requests with noise, endpoints that differ.

Nothing here comes from the code that judges. A world draws its prompts once; each run sends them again,
to new endpoints.
"""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass, replace
from typing import Any

from peagle_bench.results.records import ArmRecord, ClientHealth, Header, Load, PointRecord, RequestRecord
from peagle_bench.results.result_file import Results

ALONE = Load("closed", concurrency=1)
EIGHT = Load("closed", concurrency=8)
HEALTHY = ClientHealth(True, None, 0.1, 0.05, 10.0, bottleneck=False)
STEP_S = {"none": 0.010, "eagle3": 0.013, "p-eagle": 0.014}
ACCEPTED = {"none": 0.0, "eagle3": 1.6, "p-eagle": 2.0}  #: draft tokens of a verification step, on average


@dataclass(frozen=True)
class Change:
    """What is different in a run: by mode a factor of its seconds, or of its accepted draft tokens.

    ``answers``: prompts that a mode answers differently, as (mode, prompt). ``failed``: the same, as errors.
    """

    seconds: tuple[tuple[str, float], ...] = ()
    accepted: tuple[tuple[str, float], ...] = ()
    answers: frozenset[tuple[str, int]] = frozenset()
    failed: frozenset[tuple[str, int]] = frozenset()


@dataclass(frozen=True)
class World:
    """Standard deviations are of logarithms.

    ``over_prompts`` is the spread of a mode's acceptance over prompts, ``noise`` that of one request,
    ``wander`` that of the speed of all arms together (it has a memory of some ten turns), ``endpoints`` that
    of endpoints of one kind. ``jitter`` is the share of requests whose answer rounding decides.
    """

    prompts: int = 80
    deployments: int = 1
    modes: tuple[str, ...] = ("none", "p-eagle")
    load: Load = ALONE
    over_prompts: float = 0.25
    over_lengths: float = 0.6
    noise: float = 0.02
    wander: float = 0.05
    endpoints: float = 0.01
    jitter: float = 0.0
    temperature: float | None = 0.0
    seed: int = 0

    def run(self, day: int, change: Change | None = None) -> Results:
        """Measure the world on a day; the same day gives the same figures."""
        change = change or Change()
        prompts = random.Random(f"prompts {self.seed}")
        lengths = [8 + round(math.exp(prompts.gauss(4.5, self.over_lengths))) for _ in range(self.prompts)]
        levels = {
            mode: [ACCEPTED[mode] * math.exp(prompts.gauss(0, self.over_prompts)) for _ in lengths]
            for mode in self.modes
        }
        draws = random.Random(f"day {self.seed} {day}")
        arms: list[ArmRecord] = []
        requests: list[RequestRecord] = []
        points: list[PointRecord] = []
        clock, wandering = 0.0, 0.0
        for number in range(1, self.deployments + 1):
            ending = "" if number == 1 else f"@{number}"
            speeds = {mode: math.exp(draws.gauss(0, self.endpoints)) for mode in self.modes}
            names = [(mode, f"{mode}{ending}") for mode in self.modes]
            names.append(("none", f"none{ending} (A/A)"))
            for mode, name in names:
                arms.append(
                    ArmRecord(
                        name,
                        mode,  # type: ignore[arg-type]
                        None if mode == "none" else 5,
                        f"cmp-{mode}",
                        instance_type="ml.g6e.2xlarge",
                        usd_per_hour=3.0,
                        deployment=str(number),
                        control="A/A" in name,
                    )
                )
            for prompt, tokens in enumerate(lengths):
                for mode, name in names:
                    wandering = 0.9 * wandering + draws.gauss(0, self.wander * math.sqrt(1 - 0.9**2))
                    request = self._request(mode, name, prompt, tokens, levels[mode][prompt], change, draws)
                    factor = dict(change.seconds).get(mode, 1.0) * speeds[mode]
                    seconds = request.done_s * factor * math.exp(wandering + draws.gauss(0, self.noise))
                    requests.append(
                        replace(request, sent_s=clock, done_s=clock + seconds, first_s=clock + 0.02)
                    )
                    clock += seconds
            points += [self._point(name, requests) for _, name in names]
        header = Header("compare-1", "compare", self._config(), self._provenance(arms), False)
        return Results(header, tuple(arms), tuple(requests), tuple(points))

    def _request(
        self,
        mode: str,
        name: str,
        prompt: int,
        tokens: int,
        level: float,
        change: Change,
        draws: random.Random,
    ) -> RequestRecord:
        level *= dict(change.accepted).get(mode, 1.0)
        drafts = max(1, round(tokens / (1 + level)))
        answer = f"{prompt}" + (" changed" if (mode, prompt) in change.answers else "")
        if draws.random() < self.jitter:
            answer += f" {draws.random()}"
        failed = (mode, prompt) in change.failed
        return RequestRecord(
            arm=name,
            load=self.load,
            prompt_id=f"p{prompt}",
            phase="measured",
            due_s=0.0,
            sent_s=0.0,
            first_s=None,
            last_s=None,
            done_s=drafts * STEP_S[mode],
            input_tokens=20,
            output_tokens=None if failed else tokens,
            chunks=drafts,
            gaps_ms=(10.0,) * 3,
            block=prompt * 6 // self.prompts,
            finish_reason="stop",
            error="ModelError" if failed else None,
            drafts=None if mode == "none" else drafts,
            accepted=None if mode == "none" else tokens - drafts,
            output_sha256=None if failed else hashlib.sha256(answer.encode()).hexdigest(),
        )

    def _point(self, name: str, requests: list[RequestRecord]) -> PointRecord:
        own = [request for request in requests if request.arm == name]
        errors = sum(request.error is not None for request in own)
        return PointRecord(
            arm=name,
            load=self.load,
            seconds=math.fsum(request.done_s - request.sent_s for request in own),
            requests=len(own),
            errors={"ModelError": errors} if errors else {},
            input_tokens=20 * len(own),
            output_tokens=sum(request.output_tokens or 0 for request in own),
            otps=100.0,
            otps_per_request=100.0,
            requests_per_s=1.0,
            ttft_ms=None,
            tpot_ms=None,
            itl_ms=None,
            e2e_ms=None,
            acceptance=None,
            client=HEALTHY,
            temperature=self.temperature,
        )

    def _config(self) -> dict[str, Any]:
        return {
            "modes": list(self.modes),
            "deployments": self.deployments,
            "workload": {"name": "mine", "prompts": self.prompts, "temperature": self.temperature},
            "loads": [self.load.label],
            "blocks": 6,
            "seed": 0,
            "max_tokens": None,
            "requests_sha256": f"of seed {self.seed} and {self.prompts} prompts",
        }

    def _provenance(self, arms: list[ArmRecord]) -> dict[str, Any]:
        origin = {"target": "mine", "image": "aws/vllm:0.32.0-gpu", "engine": None}
        return {"seed": 0, "endpoints": {arm.name: origin for arm in arms if not arm.control}}
