"""Answer of host or call: what a reader needs beside the verdict, as data for JSON and as a page. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from peagle_bench.decide.costs import Traffic, gap_of
from peagle_bench.decide.decision import REASONS, Decision, Option, changes, rate_text, sentence
from peagle_bench.decide.prediction import Prediction, caution
from peagle_bench.decide.section import calling_text, section
from peagle_bench.report.fleet import HEADROOM
from peagle_bench.report.formatting import number, plural, share
from peagle_bench.report.merging import parts_of
from peagle_bench.report.page import decision_page
from peagle_bench.report.verdict import Verdict
from peagle_bench.results.result_file import Results


@dataclass(frozen=True)
class Answer:
    """A decision with what a reader needs beside it.

    ``hours`` is the spec's timetable, ``token_source`` the source of the prices of tokens, ``measured`` are
    the results files that say what an instance serves. ``rate_source`` is where the rate comes from, if the
    user did not give it. ``max_instances`` is the spec's maximum, if it has autoscaling.
    """

    decision: Decision
    model: str
    region: str
    hours: str | None
    token_source: str
    measured: tuple[Results, ...] = ()
    rate_source: str | None = None
    max_instances: int | None = None
    predictions: tuple[Prediction, ...] = ()  #: from step times; then ``measured`` is empty

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        return sentence(self.decision)

    @property
    def cautions(self) -> list[str]:
        """What the figures must say of their target."""
        if self.predictions:
            times = self.predictions[0].times
            return [caution(times), *times.notes]
        return [text for each in self.measured for text in each.header.notes][:1]

    @property
    def sources(self) -> list[str]:
        """Where prices and capacities come from."""
        hostings = [option.hosting for option in self.decision.options]
        lines = [f"tokens: {self.token_source}", *(f"instance: {each.price_source}" for each in hostings)]
        lines += [
            f"{each.instance_type}, {each.label}: serves {rate_text(each.serves)} tokens/s,"
            f" {each.serves_source}"
            for each in hostings
            if each.serves is not None
        ]
        return list(dict.fromkeys(lines))

    @property
    def notes(self) -> list[str]:
        """What the figures assume."""
        return [*self._traffic_notes(), *self._option_notes()]

    def _traffic_notes(self) -> list[str]:
        traffic, chosen = self.decision.traffic, self.decision.chosen
        mix = f"{number(traffic.input_per_output)} input tokens for each output token"
        if traffic.cached_per_output:
            mix += f", {number(traffic.cached_per_output)} of them cached"
            mix += "" if self.decision.tokens.cached else ", which has no price of its own"
        lines = [prediction.words(self._usd_per_hour(prediction)) for prediction in self.predictions]
        lines += [f"the rate is of {self.rate_source}"] if self.rate_source else []
        lines += [mix, calling_text(self.decision)]
        if chosen.hosting.serves is not None or chosen.must_serve is not None:
            lines.append(_use_text(traffic, chosen.hosting.on))
        return lines

    def _usd_per_hour(self, prediction: Prediction) -> float | None:
        """Return the price of one instance of the type with step times; None if it is not compared."""
        kind = prediction.times.arm.instance_type
        hostings = [option.hosting for option in self.decision.options]
        return next((each.usd_per_hour.value for each in hostings if each.instance_type == kind), None)

    def _option_notes(self) -> list[str]:
        lines = []
        if self.hours:
            on = share(self.decision.chosen.hosting.on)
            lines.append(f"on {on} of the week ({self.hours}); assumed: no request comes outside these hours")
        if self.max_instances is not None:
            lines.append(
                "autoscaling is not counted: all instances are billed while the endpoint is on; the spec"
                f" allows {self.max_instances} at most"
            )
        gap = gap_of(self.decision.chosen.hosting, self.decision.traffic, self.decision.usd_per_token)
        if gap is not None and self.decision.chosen.hosting.counts:
            lines.append(
                f"hosting wins up to {number(gap.low)} tokens/s on {plural(gap.instances, 'instance')}, and"
                f" again above {number(gap.high)} on {gap.instances + 1}"
            )
        if any(option.instances is None for option in self.decision.options):
            lines.append(
                "+: at least this, because it is not known what one instance serves; measure it with"
                " `peagle-sm bench`, and give the file with --measured"
            )
        if any(option.utilisation is not None for option in self.decision.options):
            lines.append(
                "equal at: share of an instance's full load at which hosting and calling cost the same"
            )
        for option in self.decision.options:
            above = option.wins_above
            if above is not None and above.high - above.low > 0.005 * above.value:
                lines.append(
                    f"{option.hosting.instance_type}: the costs are equal at {rate_text(above)} tokens/s"
                )
            lines += [
                f"{option.hosting.instance_type}, {option.hosting.label}: {miss}"
                for miss in (*option.hosting.faults, *option.hosting.misses)
            ]
        return lines

    def changes(self) -> list[str]:
        """What moves the rate above which hosting wins."""
        return changes(self.decision, self.hours)

    def html(self) -> str:
        """Return the page: this decision, then the report of the measurement that it uses."""
        name = f"Host or call: {self.model}"
        watermark = parts_of(self.measured)[0].view.watermark if self.measured else None
        if self.predictions:
            label = self.predictions[0].times.header.label
            watermark = ", ".join(["predicted from synthetic step times", *([label] if label else [])])
        own = section(self.decision, self.changes(), [*self.notes, *self.sources], watermark)
        return decision_page(name, Verdict(self.sentence, "", tuple(self.cautions)), own, self.measured)

    def data(self) -> dict[str, Any]:
        """Return the same for --format json; None means unknown."""
        decision = self.decision
        headers = [each.header for each in self.measured]
        headers += [each.times.header for each in self.predictions]
        target = headers[0].target_data() if headers else {}
        return {
            "sentence": self.sentence,
            "verdict": decision.verdict,
            "model": self.model,
            "region": self.region,
            "currency": "USD",
            **target,
            "traffic": _traffic(decision.traffic),
            "calling": {
                "usd_per_month": asdict(decision.usd_calling),
                "usd_per_million": asdict(decision.tokens),
                "usd_per_output_token": asdict(decision.usd_per_token),
                "source": self.token_source,
            },
            "options": [_option(option) for option in decision.options],
            "chosen": decision.options.index(decision.chosen),
            "predictions": [each.to_dict() for each in self.predictions],
            "changes": self.changes(),
            "notes": self.notes,
            "reasons": list(REASONS),
        }


def _use_text(traffic: Traffic, on: float) -> str:
    """Say which share of what the instances serve stays free, and when."""
    if traffic.busiest is None:
        return f"the mean rate uses {share(traffic.used)} of what the instances serve (--used)"
    free = f"{share(HEADROOM)} of what the instances serve stays free"
    if traffic.busiest < 1 / on:
        return f"while the endpoint is on, the rate is {number(1 / on)} times the mean of the month; {free}"
    return f"the busiest hour has {number(traffic.busiest)} times the mean rate; {free} in it"


def _traffic(traffic: Traffic) -> dict[str, Any]:
    """Return the traffic; the share used does not count if the busiest hour is known."""
    return {**asdict(traffic), "used": traffic.used if traffic.busiest is None else None}


def _option(option: Option) -> dict[str, Any]:
    hosting = option.hosting
    return {
        **asdict(hosting),
        "verdict": option.verdict,
        "instances": option.instances,
        "usd_per_month": asdict(option.usd),
        "at_least": option.instances is None,
        "over_calling": asdict(option.ratio),
        "wins_above": None if option.wins_above is None else asdict(option.wins_above),
        "utilisation": option.utilisation,
        "must_serve": option.must_serve,
    }
