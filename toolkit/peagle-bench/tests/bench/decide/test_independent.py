"""`decide` against a calculation that was written from its page, host-or-call.md, not from its code.

200 worlds: models, prices, traffic and measurements, drawn with a seed. In each of them the command and the
calculation must take the same side, and their costs must agree within 1%.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from peagle_bench.results.records import ArmRecord, Load, Mode, Percentiles, PointRecord
from peagle_bench.results.result_file import to_line
from peagle_sm.traffic.records import RecordedUsage, TrafficRecord
from peagle_sm.traffic.records import to_line as to_traffic_line
from tests.bench.report.making import closed, header, point
from tests.cli.running import run

SECONDS_PER_MONTH = 730 * 3600
DATA = files("peagle_sm.core") / "data"
TOKEN_PRICES = yaml.safe_load((DATA / "token_prices.yaml").read_text(encoding="utf-8"))
INSTANCE_PRICES = yaml.safe_load((DATA / "prices.yaml").read_text(encoding="utf-8"))
TYPES = ["ml.g7e.2xlarge", "ml.p5.4xlarge", "ml.p5.48xlarge", "ml.p6-b200.48xlarge"]
SMALL = ["ml.g6e.2xlarge", "ml.g6e.12xlarge"]  #: too small for the two large models
MODELS = {
    "gpt-oss-20b": TYPES + SMALL,
    "gpt-oss-120b": TYPES,
    "qwen3-coder-30b-a3b-instruct": TYPES + SMALL,
    "gemma-4-31b-it": TYPES,
}
HOURS = {  #: hours of a week
    "Mon-Fri 08:00-19:00 Europe/Berlin": 55,
    "Mon-Sun 06:00-22:00 UTC": 112,
    "Mon-Sat 09:00-12:00 America/New_York": 18,
}
MODES: tuple[Mode, ...] = ("none", "eagle3", "p-eagle")
MONDAY = 1_790_000_000 // 604_800 * 604_800 + 4 * 86_400


@dataclass(frozen=True)
class Option:
    """Hosting on one type in one mode; ``serves`` is of one instance, None if it is not known."""

    instance_type: str
    usd_low: float
    usd_high: float
    serves: float | None
    mode: Mode | None = None
    meets_goal: bool = True


@dataclass(frozen=True)
class World:
    """What the user has: traffic, prices, and what one instance serves."""

    model: str
    otps: float
    input_tokens: float
    output_tokens: float
    million: tuple[float, float]
    options: tuple[Option, ...]
    used: float = 0.3
    count: int = 1
    hours: str | None = None
    kind: str = "plain"
    arguments: tuple[str, ...] = ()
    files: dict[str, str] = field(default_factory=dict)

    @property
    def on(self) -> float:
        return HOURS[self.hours] / 168 if self.hours else 1.0

    @property
    def calling(self) -> float:
        """USD of a month of calling."""
        usd_in, usd_out = self.million
        per_output = usd_out + usd_in * self.input_tokens / self.output_tokens
        return self.otps * SECONDS_PER_MONTH * per_output / 1e6


# --- the calculation -----------------------------------------------------------------------------


def carries(world: World, option: Option) -> float:
    """Mean rate over the month that one instance carries."""
    assert option.serves is not None
    return option.serves * world.used * world.on


def instances(world: World, option: Option) -> int:
    if option.serves is None:
        return world.count
    return max(world.count, math.ceil(world.otps / carries(world, option)))


def hosting(world: World, option: Option) -> tuple[float, float]:
    """USD of a month of hosting, from the lower and the upper price; without ``serves`` at least this."""
    hours = instances(world, option) * 730 * world.on
    return hours * option.usd_low, hours * option.usd_high


def side(world: World, option: Option) -> str:
    low, high = (usd / world.calling for usd in hosting(world, option))
    if low > 1.01:
        return "call"
    if high < 0.99:
        return "measure" if option.serves is None else "host"
    return "tie"


def answer(world: World) -> str:
    """Host if one option wins, call if all lose; an option that misses the goal is none."""
    sides = {side(world, option) for option in world.options if option.meets_goal}
    return next((best for best in ("host", "measure", "tie", "call") if best in sides), "measure")


def equal_at(world: World, option: Option, count: int, usd_per_hour: float) -> float:
    """Mean rate at which ``count`` instances cost as much as calling."""
    return count * 730 * world.on * usd_per_hour / (world.calling / world.otps)


def wins_above(world: World, option: Option) -> float | None:
    """Rate above which hosting wins, next to the world's rate; None if it wins at none.

    When hosting has the lower cost, this is below the rate: go down while fewer instances still win.
    """
    usd, count = option.usd_high, instances(world, option)
    if option.serves is None:
        return equal_at(world, option, count, usd)
    one = carries(world, option)
    if equal_at(world, option, count, usd) > count * one:
        return None
    while count > world.count and equal_at(world, option, count, usd) <= (count - 1) * one:
        count -= 1
    return equal_at(world, option, count, usd)


def must_serve(world: World, option: Option) -> float:
    """What one instance must serve so that hosting wins with as many instances as calling would pay for."""
    most = world.calling // (730 * world.on * option.usd_high)
    return world.otps / world.used / world.on / most


def is_clear(world: World) -> bool:
    """Whether no cost is so near to the bound of a tie, or to one more instance, that rounding decides."""
    for option in world.options:
        ratios = [usd / world.calling for usd in hosting(world, option)]
        if any(abs(abs(ratio - 1) - 0.01) < 0.001 for ratio in ratios):
            return False
        if option.serves is not None:
            exact = world.otps / carries(world, option)
            if abs(exact - round(exact)) < 1e-6 * exact:
                return False
    return True


# --- the worlds ----------------------------------------------------------------------------------


def log_uniform(draw: random.Random, low: float, high: float) -> float:
    return float(f"{math.exp(draw.uniform(math.log(low), math.log(high))):.6g}")


def listed(instance_type: str) -> tuple[float, float]:
    """Price in us-east-1: SageMaker's, else EC2's and a quarter more."""
    tables = [table for table in INSTANCE_PRICES if table["region"] == "us-east-1"]
    for kind, factor in (("sagemaker", 1.0), ("ec2", 1.25)):
        for table in tables:
            if table["kind"] == kind and instance_type in table["prices"]:
                usd = table["prices"][instance_type]
                return usd, usd * factor
    raise KeyError(instance_type)


def drawn(draw: random.Random) -> World:
    """A model, its prices, one instance type and what it serves; the rate is a decade around the crossing."""
    model = draw.choice(list(MODELS))
    (row,) = [row for row in TOKEN_PRICES[model]["prices"] if row["region"] == "us-east-1"]
    million, arguments = (row["input"], row["output"]), []
    if draw.random() < 0.4:
        million = (log_uniform(draw, 0.01, 5), log_uniform(draw, 0.02, 20))
        arguments += ["--usd-per-million", f"{million[0]}/{million[1]}"]
    instance_type = draw.choice(MODELS[model])
    low, high = listed(instance_type)
    if draw.random() < 0.4:
        low = high = log_uniform(draw, 0.5, 200)
        arguments += ["--usd-per-hour", str(low)]
    world = World(
        model=model,
        otps=log_uniform(draw, 0.1, 1e6),
        input_tokens=draw.choice([0, 1, draw.randint(1, 500), draw.randint(500, 100_000)]),
        output_tokens=draw.choice([1, draw.randint(1, 500), draw.randint(500, 10_000)]),
        million=million,
        options=(Option(instance_type, low, high, log_uniform(draw, 50, 50_000)),),
        arguments=tuple(arguments),
    )
    if draw.random() < 0.6:
        used = draw.choice([0.05, 0.5, 0.6, 0.8, 1.0])
        world = replace(world, used=used, arguments=(*world.arguments, "--used", str(used)))
    if draw.random() < 0.4:
        world = replace(world, count=draw.choice([1, 2, 3, 5]), hours=draw.choice([None, *HOURS]))
    if draw.random() < 0.6:
        (option,) = world.options
        near = equal_at(world, option, world.count + draw.randint(0, 4), option.usd_high)
        world = replace(world, otps=float(f"{min(1e6, max(0.1, near * draw.uniform(0.5, 2))):.6g}"))
    return world


def of_mean_rate(draw: random.Random) -> World:
    """The rate and the mean of a request are given, some of it in a file; what is served may be unknown."""
    world = drawn(draw)
    (option,) = world.options
    kind = draw.random()
    if kind < 0.15:
        world = replace(world, options=(replace(option, serves=None),), kind="not measured")
    else:
        world = replace(world, arguments=(*world.arguments, "--serves", str(option.serves)))
    if 0.15 < kind < 0.3:
        usage = {"prompt_tokens": world.input_tokens, "completion_tokens": world.output_tokens}
        lines = json.dumps({"usage": usage}) + "\n"
        arguments = (*world.arguments, "--traffic", "requests.jsonl", "--otps", str(world.otps))
        return replace(world, arguments=arguments, files={"requests.jsonl": lines * 30})
    arguments = (*world.arguments, "--tokens", f"{world.input_tokens}/{world.output_tokens}")
    if kind < 0.6:
        return replace(world, arguments=(*arguments, "--otps", str(world.otps)))
    rate = world.otps / world.output_tokens
    return replace(world, arguments=(*arguments, "--requests-per-s", repr(rate)))


def at_a_tie(draw: random.Random) -> World:
    """The rate is within 0.8% of the one at which the costs are equal, or a little further away."""
    while True:
        world = drawn(draw)
        (option,) = world.options
        count = world.count + draw.randint(0, 3)
        off = draw.choice([0, 0.003, -0.005, 0.008, -0.008, 0.013, -0.013, 0.03])
        otps = equal_at(world, option, count, option.usd_high) / (1 + off)
        world = replace(world, otps=float(f"{otps:.9g}"), kind="tie" if abs(off) < 0.01 else "near a tie")
        if option.usd_low == option.usd_high and 0.1 <= otps <= 1e6 and instances(world, option) == count:
            break
    given = ("--serves", str(option.serves), "--otps", str(world.otps))
    tokens = ("--tokens", f"{world.input_tokens}/{world.output_tokens}")
    return replace(world, arguments=(*world.arguments, *given, *tokens))


def measured(draw: random.Random) -> World:
    """A results file has modes on types, by load. Loads with errors, or beyond the goal, do not count."""
    world = drawn(draw)
    arguments = [*world.arguments, "--tokens", f"{world.input_tokens}/{world.output_tokens}"]
    arguments += ["--otps", str(world.otps), "--measured", "bench.jsonl"]
    goal = draw.choice([None, 300.0])
    if goal:
        arguments += ["--goal", f"ttft_ms={goal:g}"]
    (first,) = world.options
    types = [first.instance_type]
    if "--usd-per-hour" not in arguments:
        types = sorted({*types, *draw.sample(MODELS[world.model], 2)})
    options, lines = [], [to_line(replace(header("bench"), run_id="measured"))]
    for instance_type in types:
        low, high = (first.usd_low, first.usd_high) if len(types) == 1 else listed(instance_type)
        for mode in draw.sample(MODES, draw.randint(1, 3)):
            arm = ArmRecord(
                name=f"{mode}-on-{instance_type.replace('.', '-')}",
                mode=mode,
                num_speculative_tokens=None if mode == "none" else 3,
                endpoint="e",
                instance_type=instance_type,
                instance_count=draw.randint(1, 3),
            )
            points = [loaded(draw, arm, closed(c)) for c in (1, 8, 32)]
            lines += [to_line(arm), *map(to_line, points)]
            whole = [each for each in points if sum(each.errors.values()) <= 0.01 * each.requests]
            fast = [each for each in whole if not goal or (each.ttft_ms and each.ttft_ms.p95 <= goal)]
            serves = max(each.otps for each in fast or whole) / arm.instance_count
            options.append(Option(instance_type, low, high, serves, mode, bool(fast)))
    given = tuple(chain.from_iterable(("--instance-type", each) for each in types))
    return replace(
        world,
        options=tuple(options),
        kind="measured",
        arguments=(*arguments, *given),
        files={"bench.jsonl": "\n".join(lines) + "\n"},
    )


def loaded(draw: random.Random, arm: ArmRecord, load: Load) -> PointRecord:
    """A point: the first load always answers without errors, and half of them in time."""
    failed = 0 if load.concurrency == 1 else draw.choice([0, 10, 60])
    ttft_ms = draw.uniform(50, 900)
    otps = log_uniform(draw, 100, 30_000)
    return replace(
        point(arm, load, draw),
        seconds=600.0,
        requests=1000,
        errors={"StreamError": failed} if failed else {},
        output_tokens=int(otps * 600),
        otps=otps,
        ttft_ms=Percentiles(ttft_ms * 0.6, ttft_ms, ttft_ms * 1.2, ttft_ms * 0.65, 1000),
    )


def recorded(draw: random.Random) -> World:
    """A recording of two days: in its busiest hour 30% of what the instances serve must stay free.

    With hours all traffic comes in them: then no hour of the month has less than the mean over these hours.
    """
    hours = draw.choice([None, *HOURS])
    world = replace(drawn(draw), count=1, hours=hours, kind="recorded")
    while "--used" in world.arguments or "--usd-per-hour" in world.arguments or not world.input_tokens:
        world = replace(drawn(draw), count=1, hours=hours, kind="recorded")
    a_day = [draw.choice([1, 2, 6, 12]) for _ in range(24)]
    most = a_day[draw.randrange(24)] = draw.choice([14, 30])
    times = [
        hour * 3600 + 3600 * (number + 0.5) / requests
        for hour, requests in enumerate(a_day * 2)
        for number in range(requests)
    ]
    sample = draw.choice([1.0, 0.1, 0.001])
    usage = RecordedUsage(int(world.input_tokens), int(world.output_tokens))
    lines = [
        to_traffic_line(
            TrafficRecord(
                id=f"r{number}",
                time=MONDAY + time,
                endpoint="e",
                request={"messages": [{"role": "user", "content": f"question {number}"}]},
                usage=usage,
                sample=sample,
                conversation=f"c{number}",
            )
        )
        for number, time in enumerate(times)
    ]
    otps = len(times) * world.output_tokens / sample / (times[-1] - times[0])
    busiest = most * world.output_tokens / sample / 3600
    world = replace(world, otps=otps, used=0.7 * otps / (max(busiest, otps / world.on) * world.on))
    (option,) = world.options
    option = replace(option, serves=float(f"{otps / world.used / draw.uniform(0.3, 6):.6g}"))
    usd = world.calling / instances(world, option) / 730 * draw.uniform(0.5, 2)
    if usd < 1e-6:  # the least price that the command takes
        return recorded(draw)
    option = replace(option, usd_low=float(f"{usd:.6g}"), usd_high=float(f"{usd:.6g}"))
    given = ("--serves", str(option.serves), "--usd-per-hour", str(option.usd_low))
    return replace(
        world,
        options=(option,),
        arguments=(*world.arguments, "--traffic", "traffic.jsonl", *given),
        files={"traffic.jsonl": "\n".join(lines) + "\n"},
    )


KINDS: tuple[tuple[int, Callable[[random.Random], World]], ...] = (
    (110, of_mean_rate),
    (40, at_a_tie),
    (35, measured),
    (15, recorded),
)


def worlds() -> Iterator[World]:
    draw = random.Random(33)
    for count, make in KINDS:
        for _ in range(count):
            world = make(draw)
            while not is_clear(world):
                world = make(draw)
            yield world


# --- the command ---------------------------------------------------------------------------------


def decided(world: World, folder: Path) -> dict[str, Any]:
    """Return the document that the command prints for a world."""
    arguments = [str(folder / each) if each in world.files else each for each in world.arguments]
    for name, content in world.files.items():
        (folder / name).write_text(content, encoding="utf-8")
    target, types = world.model, list(dict.fromkeys(option.instance_type for option in world.options))
    if world.count > 1 or world.hours:
        placement = {"region": "us-east-1", "instance_types": types, "instance_count": world.count}
        mode = "eagle3" if world.model.startswith("gemma") else "p-eagle"
        spec = {"name": "demo", "model": world.model, "placement": placement, "speculation": {"mode": mode}}
        spec |= {"hours": world.hours} if world.hours else {}
        target = str(folder / "peagle.yaml")
        Path(target).write_text(yaml.safe_dump(spec), encoding="utf-8")
    elif "--instance-type" not in arguments:
        arguments += chain.from_iterable(("--instance-type", each) for each in types)
    result = run("decide", target, "--region", "us-east-1", *arguments, "--format", "json")
    assert result.exit_code == 0, (result.stderr, world)
    return dict(json.loads(result.stdout))


def differences(world: World, document: dict[str, Any]) -> list[str]:
    """Where the command and the calculation do not agree."""
    found = []

    def check(name: str, value: Any, expected: Any) -> None:
        same = (
            value == pytest.approx(expected, rel=0.01) if isinstance(expected, float) else value == expected
        )
        if not same:
            found.append(f"{name}: {value}, expected {expected}")

    check("side", document["verdict"], answer(world))
    check("rate", document["traffic"]["otps"], float(world.otps))
    check("calling", document["calling"]["usd_per_month"]["value"], world.calling)
    by_mode = {(row["instance_type"], row["mode"]): row for row in document["options"]}
    by_type = {row["instance_type"]: row for row in document["options"]}
    check("options", len(document["options"]), len(world.options))
    for option in world.options:
        name, row = option.instance_type, by_type[option.instance_type]
        if option.mode:
            name, row = f"{name} {option.mode}", by_mode[option.instance_type, option.mode]
        low, high = hosting(world, option)
        check(f"{name} low", row["usd_per_month"]["low"], low)
        check(f"{name} high", row["usd_per_month"]["high"], high)
        if option.serves is not None:
            check(f"{name} instances", row["instances"], instances(world, option))
        if option.serves is None and side(world, option) == "measure":
            check(f"{name} must serve", row["must_serve"], must_serve(world, option))
        if option.meets_goal:
            check(f"{name} side", row["verdict"], side(world, option))
            above = row["wins_above"] and row["wins_above"]["value"]
            check(f"{name} wins above", above, wins_above(world, option))
    return found


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[World, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("worlds")
    return [(world, decided(world, folder)) for world in worlds()]


def test_it_takes_the_side_and_the_costs_of_an_independent_calculation(
    answers: list[tuple[World, dict[str, Any]]],
) -> None:
    wrong = [(world, found) for world, document in answers if (found := differences(world, document))]
    assert wrong == []


def test_the_worlds_have_every_answer_and_many_ties(answers: list[tuple[World, dict[str, Any]]]) -> None:
    sides = Counter(document["verdict"] for _, document in answers)
    assert len(answers) == 200
    assert min(sides[name] for name in ("call", "host", "tie", "measure")) >= 10
    assert all(document["verdict"] == "tie" for world, document in answers if world.kind == "tie")
    assert all(document["verdict"] != "tie" for world, document in answers if world.kind == "near a tie")
