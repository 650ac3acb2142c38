from __future__ import annotations

from typing import Any

import pytest

from peagle_bench.tune.arms import arm_spec, label, parse_modes, synthetic_spec
from peagle_bench.tune.estimate import Estimate, Settings, estimate, is_runtime
from peagle_bench.tune.run import total
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.endpoint_spec import EndpointSpec


def base(**more: object) -> EndpointSpec:
    return EndpointSpec(**{"name": "tiny-p-eagle", "model": "tiny-code", **more})


def test_each_arm_is_an_endpoint_of_its_own() -> None:
    assert arm_spec(base(), "none", None).name == "tune-tiny-none"
    created = arm_spec(base(), "eagle3", 5)
    assert created.name == "tune-tiny-eagle3-k5"
    assert (created.speculation.num_speculative_tokens, created.speculation.draft_head) == (
        5,
        "tiny-code-eagle3",
    )
    assert "PEAGLE_SM_RUNTIME_K" not in created.serving.env


def test_the_engine_that_changes_k_is_asked_for_by_its_environment() -> None:
    created = arm_spec(base(serving={"env": {"SM_VLLM_SEED": "1"}}), "p-eagle", 11, runtime=True)
    assert created.name == "tune-tiny-p-eagle"
    assert created.serving.env == {"SM_VLLM_SEED": "1", "PEAGLE_SM_RUNTIME_K": "1"}
    assert created.speculation.num_speculative_tokens == 11


def test_a_synthetic_endpoint_has_its_own_name_and_the_spec_s_head() -> None:
    spec = base(hours="Mon-Fri 08:00-19:00 Europe/Berlin", head_uri="s3://bucket/head/")
    created = synthetic_spec(spec, "p-eagle", 3, 4.0, runtime=True)
    assert created.name == "synthetic-tiny-p-eagle-k3-a4"
    assert created.synthetic_acceptance_length == 4.0
    assert (created.head_uri, created.hours) == ("s3://bucket/head/", None)
    assert created.serving.env == {"PEAGLE_SM_RUNTIME_K": "1"}
    assert arm_spec(spec, "p-eagle", 3).synthetic_acceptance_length is None


def test_nothing_resizes_or_turns_off_an_arm_while_it_is_measured() -> None:
    created = arm_spec(
        base(hours="Mon-Fri 08:00-19:00 Europe/Berlin", autoscaling={"max_instances": 3}), "none", None
    )
    assert created.hours is None
    assert created.autoscaling is None


def test_a_name_that_grows_too_long_is_refused() -> None:
    with pytest.raises(SpecError, match="name"):
        arm_spec(base(name="x" * 50), "p-eagle", 7)


@pytest.mark.parametrize("text", ["", "none", "p-eagle,p-eagle", "medusa"])
def test_modes_without_a_k_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match="--modes"):
        parse_modes(text)


def test_modes_and_labels() -> None:
    assert parse_modes("eagle3, p-eagle, ngram") == ("eagle3", "p-eagle", "ngram")
    assert (label("p-eagle", 7), label("none", 0)) == ("p-eagle K=7", "none")


def test_k_changes_in_one_engine_only_if_every_mode_can() -> None:
    assert is_runtime("auto", True, ("p-eagle", "ngram"))
    assert not is_runtime("auto", True, ("p-eagle", "suffix"))
    assert not is_runtime("auto", False, ("p-eagle",))
    with pytest.raises(SpecError, match="runtime with mode dflash") as caught:
        is_runtime("runtime", False, ("eagle3", "dflash"))
    assert "--by deployments" in str(caught.value.next_step)


def price(**more: Any) -> Estimate:
    own = {
        "max_tokens": 128,
        "usd_per_hour": 10.0,
        "max_lifetime_hours": 8.0,
        "local": False,
    }
    fields: dict[str, Any] = {"concurrencies": (1, 8), "runtime": False}
    fields |= {name: value for name, value in more.items() if name not in own}
    settings = Settings(modes=("p-eagle",), max_k=11, requests=24, **fields)
    return estimate(settings, **{name: more.get(name, value) for name, value in own.items()})


def test_the_cost_is_told_with_a_bound() -> None:
    result = price(concurrencies=(1,))
    assert (result.deployments, result.windows, result.most_usd) == (6, 6, 480.0)
    assert result.usd is not None
    assert 20 * result.minutes / 60 == pytest.approx(result.usd, abs=0.01)
    assert "6 deployments, at most 6 windows" in result.words()
    assert "at most 480.00 USD" in result.words()


def test_an_unknown_price_is_no_zero() -> None:
    assert "cost unknown: no price found" in price(usd_per_hour=None).words()
    assert "nothing is billed" in price(usd_per_hour=0.0, local=True).words()


def test_the_costs_add_up() -> None:
    assert total([5.0, 2.0]) == 7.0
    assert total([5.0, None]) is None
