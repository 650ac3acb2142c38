"""`peagle-sm decide`: call a hosted model by the token, or host it on SageMaker."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_bench.commands.options import (
    FILE,
    Figure,
    goal_option,
    k_option,
    objective_of,
    step_times_option,
)
from peagle_sm.cli.arguments import open_session, read_spec
from peagle_sm.cli.base import Command, State, global_options
from peagle_sm.cli.console import emit, note
from peagle_sm.cli.terminal import show
from peagle_sm.core.errors import SpecError

if TYPE_CHECKING:
    from peagle_bench.decide.answer import Answer
    from peagle_bench.decide.costs import TokenCosts, Traffic
    from peagle_bench.decide.traffic import Observed
    from peagle_bench.results.result_file import Results
    from peagle_bench.step_times import StepTimes
    from peagle_sm.aws.session.session import Session
    from peagle_sm.core.planning import Plan
    from peagle_sm.core.spec.endpoint_spec import EndpointSpec

    _Type = click.ParamType[Any]  # generic since click 8.2; we run with 8.1 too
else:
    _Type = click.ParamType


class Pair(_Type):
    """Type of two numbers, for input and for output tokens: ``what`` they are, and an ``example``."""

    name = "pair"

    def __init__(self, what: str, example: str) -> None:
        self._what, self._example = what, example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a tuple of two floats; return a tuple unchanged."""
        if isinstance(value, tuple):
            return value
        try:
            read, written = (float(part) for part in str(value).split("/"))
        except ValueError:
            read = written = -1.0
        if not (self._is_figure(written) and (read == 0 or self._is_figure(read))):
            self.fail(
                f"{value!r}: allowed: {self._what} of input (0 or more) and of output (more than 0), each at"
                f" most {Figure.MOST:,.0f}, such as {self._example}",
                param,
                ctx,
            )
        return read, written

    @staticmethod
    def _is_figure(value: float) -> bool:
        return Figure.LEAST <= value <= Figure.MOST


@click.command(cls=Command)
@click.argument("spec_path", metavar="[SPEC|MODEL]", default="peagle.yaml", type=FILE)
@click.option(
    "--traffic",
    metavar="FILE",
    help="Requests with token counts: JSON lines with usage, recorded traffic (file, folder or s3://…), or a "
    "results file.",
)
@click.option(
    "--endpoint", metavar="NAME", help="Take the rate from a day of this endpoint's CloudWatch metrics."
)
@click.option(
    "--tokens",
    metavar="IN/OUT",
    type=Pair("tokens", "600/200"),
    help="Mean tokens of a request, such as 600/200.",
)
@click.option("--otps", type=Figure(), help="Output tokens per second, as a mean over the whole month.")
@click.option("--requests-per-s", type=Figure(), help="Requests per second, as a mean over the whole month.")
@click.option(
    "--measured",
    multiple=True,
    type=FILE,
    help="Results file of bench or compare: what one instance serves in each mode. May be repeated.",
)
@click.option(
    "--serves", type=Figure(), help="Output tokens per second that one instance serves at full load."
)
@goal_option
@step_times_option
@click.option(
    "--acceptance-length",
    "lengths",
    type=Figure(),
    multiple=True,
    help="With --step-times: tokens of a step that a head would give, such as 3.0. May be repeated.",
)
@k_option
@click.option(
    "--used",
    type=Figure(most=1),
    help="Share of the capacity that your mean rate uses.  [default: from the busiest hour, else 0.3]",
)
@click.option(
    "--instance-type",
    "instance_types",
    metavar="TYPE",
    multiple=True,
    help="Instance type to compare, in place of the spec's. May be repeated.",
)
@click.option("--usd-per-hour", type=Figure(), help="Your price of one instance, such as a reservation's.")
@click.option(
    "--usd-per-million",
    metavar="IN/OUT",
    type=Pair("USD for a million tokens", "0.07/0.30"),
    help="Your price of a million tokens, in place of Bedrock's list price.",
)
@click.option("--html", "page", type=FILE, help="Write an HTML page to this file.")
@global_options
@click.pass_obj
def decide(
    state: State,
    spec_path: Path,
    traffic: str | None,
    endpoint: str | None,
    tokens: tuple[float, float] | None,
    otps: float | None,
    requests_per_s: float | None,
    measured: tuple[Path, ...],
    serves: float | None,
    goals: tuple[str, ...],
    step_times: Path | None,
    lengths: tuple[float, ...],
    k: int | None,
    used: float | None,
    instance_types: tuple[str, ...],
    usd_per_hour: float | None,
    usd_per_million: tuple[float, float] | None,
    page: Path | None,
) -> None:
    """Decide whether to call a model by the token (Amazon Bedrock) or to host it on SageMaker.

    SPEC is a spec file (default: peagle.yaml), or a model of the catalogue. The traffic comes from --traffic,
    from --endpoint, or from --otps; --tokens gives the tokens of a request where these do not. Nothing is
    created, and no request is sent to a model.

    The answer is call, host, tie, or measure: then it depends on what one instance serves, which --measured
    or --serves gives. With --step-times it is predicted for an acceptance length, and marked so. Prices
    come from AWS's price list (pricing:GetProducts, kept for a day), else from a dated table.
    """
    from peagle_bench.decide import options
    from peagle_bench.decide.answer import Answer
    from peagle_bench.decide.decision import decide as decide_at
    from peagle_bench.decide.prediction import predict, with_predictions
    from peagle_bench.report.merging import parts_of
    from peagle_sm.aws.files import write_file
    from peagle_sm.core.own_models import catalog_for
    from peagle_sm.core.plan.resolve import DEFAULT_REGION, PLACEHOLDER_ACCOUNT, Context
    from peagle_sm.core.planning import make_plan
    from peagle_sm.service import plan_for

    objective = objective_of(goals) if goals else None
    if otps is not None and requests_per_s is not None:
        raise click.UsageError("--otps and --requests-per-s both set the rate; give only one.")
    if endpoint and (otps is not None or requests_per_s is not None):
        other = "--otps" if otps is not None else "--requests-per-s"
        raise click.UsageError(f"--endpoint and {other} both set the rate; give only one.")
    if serves is not None and measured:
        raise click.UsageError("--serves and --measured both say what one instance serves; give only one.")
    times = None if step_times is None else _step_times(step_times, measured, serves)
    if times is None and (lengths or k is not None):
        raise click.UsageError("--acceptance-length and --k need --step-times FILE.")
    if times is not None and not lengths:
        raise click.UsageError("--step-times needs --acceptance-length, such as --acceptance-length 3.0.")
    if goals and not measured:
        raise click.UsageError("--goal needs --measured: only a results file has latencies.")
    if not (traffic or endpoint or otps or requests_per_s):
        raise click.UsageError(
            "No traffic was given. Give --traffic FILE, --endpoint NAME, or a rate with the tokens of a"
            " request, such as --otps 40 --tokens 600/200."
        )
    spec = _spec(spec_path, instance_types)
    # What is wrong with the input is said before AWS is asked for a price.
    if tokens is None and traffic is None:
        _refuse_missing_tokens(endpoint)
    if times is not None:
        model = catalog_for(spec).model(spec.model_name)
        options.refuse_other_step_times(times, model, spec.model_name)
        predictions = predict(times, list(dict.fromkeys(lengths)), k, spec.speculation.num_speculative_tokens)
    if spec.own_model is None:
        options.refuse_impossible(make_plan(spec, Context(PLACEHOLDER_ACCOUNT, DEFAULT_REGION)))
    session = open_session(state, spec.placement.region, DEFAULT_REGION)
    observed = None if traffic is None else _observed(state, session, traffic, tokens)
    results = _results(state, measured)
    demand, rate_source = _traffic(session, observed, endpoint, tokens, otps, requests_per_s, used)
    plan = plan_for(spec, session, account=PLACEHOLDER_ACCOUNT)
    options.refuse_impossible(plan)
    if usd_per_hour is not None or serves is not None:
        options.demand_one_type(plan, "--serves" if usd_per_hour is None else "--usd-per-hour")
    prices, price_source = _token_prices(state, session, plan, usd_per_million)
    hostings, unpriced = options.planned(plan, usd_per_hour, serves)
    for line in unpriced:
        note(state, f"note: {line}")
    views = [part.view for part in parts_of(results)] if results else []
    if views:
        options.refuse_other_figures(views, plan.draft.model, spec.model_name)
        hostings, left_out = options.measured(hostings, views, objective)
        for line in left_out:
            note(state, f"note: {line}")
    if times is not None:
        hostings, left_out = with_predictions(hostings, predictions)
        for line in left_out:
            note(state, f"note: {line}")
    each = None if observed is None else observed.usd_per_token(prices)
    decision = decide_at(demand, prices, hostings, each)
    if usd_per_million is not None:
        decision = replace(decision, seller="your price")
    answer = Answer(
        decision,
        spec.model_name,
        plan.draft.region,
        spec.hours,
        price_source,
        tuple(results),
        rate_source,
        None if spec.autoscaling is None else spec.autoscaling.max_instances,
        () if times is None else tuple(predictions),
    )
    if page is not None:
        write_file(page, answer.html(), parents=True)
        note(state, f"wrote {page}")
    emit(state, table=lambda: render_answer(answer), data=answer.data, names=[decision.verdict])


def _step_times(path: Path, measured: Sequence[Path], serves: float | None) -> StepTimes:
    """Read step times, which are no measured rate.

    Raises:
        SpecError: the file has none.
    """
    from peagle_bench.step_times import read_step_times

    if measured or serves is not None:
        other = "--measured" if measured else "--serves"
        raise click.UsageError(f"--step-times and {other} both say what one instance serves; give only one.")
    return read_step_times(path)


def _spec(path: Path, instance_types: Sequence[str]) -> EndpointSpec:
    """Read the spec, or make the default one of a catalogue's model, which needs no file.

    Raises:
        SpecError: the file cannot be read, or has a bad field; the catalogue does not have the model.
    """
    from peagle_sm.core.catalog import load_catalog
    from peagle_sm.core.spec.endpoint_spec import parse_spec

    name, catalog = str(path), load_catalog()
    if len(path.parts) == 1 and not path.suffix and name != "-" and not path.exists():
        catalog.model(name)
        methods = {head.method for head in catalog.heads_for(name).values()}
        mode = next((mode for mode in ("p-eagle", "eagle3") if mode in methods), "none")
        spec = parse_spec(f"name: {name}\nmodel: {name}\nspeculation: {{mode: {mode}}}\n", name)
    else:
        spec = read_spec(path)
    if not instance_types:
        return spec
    placement = spec.placement.model_copy(update={"instance_types": tuple(dict.fromkeys(instance_types))})
    return spec.model_copy(update={"placement": placement})


def _token_prices(
    state: State, session: Session, plan: Plan, given: tuple[float, float] | None
) -> tuple[TokenCosts, str]:
    """Return the prices of the model's tokens and their source.

    Raises:
        SpecError: no price is known, or it is not in USD.
    """
    from peagle_bench.decide.costs import TokenCosts
    from peagle_sm.aws.control.token_prices import find_token_price
    from peagle_sm.core.token_prices import choose_token_price, sold_models

    if given is not None:
        return TokenCosts(*given), f"{given[0]:g} in, {given[1]:g} out USD per million: given by you"
    model, region = plan.spec.model_name, plan.draft.region
    sold = sold_models().get(model)
    listed = find_token_price(session, model, region)
    price = choose_token_price(sold.price(region) if sold else None, listed)
    step = "Give your price with --usd-per-million IN/OUT, in USD per million tokens."
    if price is None:
        why = f" ({listed.why})" if sold and listed.why else ""
        known = ", ".join(
            f"{name} in {row.region}" for name, each in sold_models().items() for row in each.prices
        )
        raise SpecError(
            f"no price of tokens is known for {model} in {region}{why}; known: {known}",
            next_step=step,
            details={"model": model, "region": region},
        )
    if price.currency != "USD":
        raise SpecError(
            f"two currencies: tokens of {model} in {region} cost {price.currency}, instances USD",
            next_step=step,
            details={"tokens": price.currency, "instances": "USD"},
        )
    if listed.why and not session.is_local:
        note(state, f"note: {listed.why.rstrip('.')}; used instead: {price}")
    return TokenCosts(price.input, price.output, price.cached), str(price)


def _observed(state: State, session: Session, target: str, tokens: tuple[float, float] | None) -> Observed:
    from peagle_bench.decide.traffic import read_traffic

    observed = read_traffic(target, lambda: session, tokens)
    for line in observed.notes:
        note(state, f"note: {line}")
    return observed


def _refuse_missing_tokens(endpoint: str | None) -> None:
    counted = (
        f"CloudWatch counts the requests of {endpoint}, not their tokens"
        if endpoint
        else "--otps and --requests-per-s give only a rate"
    )
    raise SpecError(
        f"the tokens of a request are not known: {counted}",
        next_step="Give the mean of a request with --tokens IN/OUT, or requests with --traffic FILE.",
    )


def _traffic(
    session: Session,
    observed: Observed | None,
    endpoint: str | None,
    tokens: tuple[float, float] | None,
    otps: float | None,
    requests_per_s: float | None,
    used: float | None,
) -> tuple[Traffic, str | None]:
    """Return the month's traffic: the options before the endpoint's metrics, and these before the file's
    times. Also return where its rate comes from; None for an option.

    Raises:
        SpecError: the rate is missing, or the endpoint had no requests.
    """
    from peagle_bench.decide.costs import Traffic
    from peagle_bench.decide.traffic import last_day
    from peagle_bench.report.costs import USED

    read, written = tokens or (0.0, 0.0)
    cached, busiest, source = 0.0, None, None
    if observed is not None:
        written = observed.output_per_request
        read, cached = observed.input_per_output * written, observed.cached_per_output * written
        busiest = observed.busiest
    if otps is None and requests_per_s is not None:
        otps = requests_per_s * written
    if otps is None and endpoint is not None:
        day = last_day(session, endpoint)
        otps, busiest = day.requests / day.seconds * written, day.busiest
        source = day.rate_source
    if otps is None and observed is not None:
        otps, source = observed.otps, observed.rate_source
    if otps is None:
        raise SpecError(
            f"{observed.origin if observed else 'the traffic'} has no rate: its requests have no times"
            " over at least an hour",
            next_step="Give the mean rate with --otps or --requests-per-s.",
        )
    if not Figure.LEAST <= otps <= Figure.MOST:
        raise SpecError(
            f"the rate is {otps:.3g} output tokens per second; allowed: {Figure.LEAST:f} to"
            f" {Figure.MOST:,.0f}",
            next_step="Correct the tokens or the times of the traffic, or give the rate with --otps.",
            details={"otps": otps},
        )
    busiest = None if used is not None else busiest
    return Traffic(otps, read / written, cached / written, busiest, used or USED), source


def _results(state: State, files: Sequence[Path]) -> list[Results]:
    """Read the results files, which must have a measured load."""
    from peagle_bench.report.merging import demand_loads
    from peagle_bench.results.result_file import read_files

    results = read_files(files) if files else []
    for warning in (text for each in results for text in each.warnings):
        note(state, f"warning: {warning}")
    if results:
        demand_loads(results)
    return list(results)


def render_answer(answer: Answer) -> str:
    """Render the answer in 80 columns: the sentence, all options, what they assume, and what moves them."""
    from peagle_bench.decide.decision import REASONS
    from peagle_bench.decide.section import options_table

    table = options_table(answer.decision, intervals=False)
    return "\n\n".join(
        [
            _wrapped(answer.sentence),
            *(_wrapped(f"note: {text}") for text in answer.cautions),
            f"{table.title} ({answer.model}, {answer.region})\n{show(table)}",
            _list(answer.notes),
            "What changes that\n" + _list(answer.changes()),
            "Reasons other than cost\n" + _list(REASONS),
            "Prices\n" + _list(answer.sources),
        ]
    )


_WIDTH = 80


def _wrapped(text: str, indent: str = "") -> str:
    lines = textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=" " * len(indent),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def _list(lines: Iterable[str]) -> str:
    return "\n".join(_wrapped(line, "- ") for line in lines)
