"""Memory, hours, price and budget of training, and the trainer's lines."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peagle_learn.core.job_names import attempt_name, attempt_of, metric_definitions, read_line, read_lines
from peagle_learn.core.memory import (
    HOST_BASE_GB,
    TrainingLoad,
    TrainingMachine,
    charged_rows_of,
    memory_of,
    rows_of,
)
from peagle_learn.core.price import TrainingPrice, operations_per_token, price_findings
from peagle_learn.core.recipes import chosen, load_recipes
from peagle_learn.core.spec import TrainSpec, parse_learn_spec
from peagle_learn.core.training_options import TrainingOption, training_options
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.errors import SpecError
from peagle_sm.core.prices import PriceEntry

BOOK = load_recipes()
SHARING = ("expert_parallel_size", "target_shards")
#: GiB above the process's base of 0.55, by tokens and partitions: docs/reference/training-memory.json, on
#: 2026-11-26, less 0.55. Rows of 8,192 tokens were last measured with logits of all rows.
MEASURED = {(2048, 1): 1.105, (2048, 4): 0.505, (2048, 8): 0.388}


@pytest.mark.parametrize(("tokens", "partitions"), MEASURED)
def test_the_sum_is_near_each_measured_point(tokens: int, partitions: int) -> None:
    recipe = BOOK.recipe("tiny-code")
    head = recipe.head.model_copy(update={"depths": 8})
    memory = memory_of(
        recipe.target, head, TrainingLoad(tokens, partitions, 0.7, 0.2), TrainingMachine(0, 16)
    )
    above = (memory.needed_gb - HOST_BASE_GB - recipe.target.weights_bytes / 1e9) * 1e9 / 2**30
    assert above == pytest.approx(MEASURED[tokens, partitions], rel=0.13)


def test_context_rows_have_no_loss_and_the_head_has_master_weights() -> None:
    """arXiv 2602.01469's partition: a part's own rows are a share of all; the further ones are context."""
    recipe = BOOK.recipe("gpt-oss-20b")
    load = TrainingLoad(20_480, 16, 0.8, 0.2, checkpointing=True)
    # of the largest part, which has up to 5% more than the mean
    assert charged_rows_of(load, 10) * 16 == pytest.approx(1.05 * rows_of(replace(load, partitions=1), 10))
    lines = memory_of(recipe.target, recipe.head, load, TrainingMachine(8, 180, "B200"), 8).lines
    gigabytes = {line[:15].strip(): float(line[15:26]) for line in lines}
    # 4 bytes of weights, of gradients, of their copy, twice of AdamW, and 2 of the bfloat16 copy.
    head = recipe.head.parameters(recipe.target) / 1e9
    assert gigabytes["head"] == pytest.approx(22 * head, rel=0.001)
    assert gigabytes["loss"] == pytest.approx(charged_rows_of(load, 10) * 201_088 * 24 / 1e9, rel=0.001)
    without_masters = gigabytes["needed"] - (22 - 10) * head
    assert without_masters < 75, "153 GB with the logits of context rows"


def test_every_recipe_fits_its_own_instance() -> None:
    catalog = load_catalog()
    for model in BOOK.models:
        recipe = BOOK.recipe(model)
        length = int(recipe.training["sequence_length"])
        rows = training_options(recipe, catalog, BOOK, lambda _: (None, "none"), lengths=(length,))
        assert [one.fits for one in rows if one.instance_type == recipe.instance_type] == [True], model


@pytest.mark.parametrize(
    ("model", "built"),
    [
        ("gpt-oss-20b", 1_702_264_640),
        ("gpt-oss-120b", 1_702_264_640),
        ("qwen3-coder-30b-a3b-instruct", 922_249_216),
        ("gemma-4-31b-it", 5_195_436_288),
    ],
)
def test_the_heads_are_as_large_as_the_library_builds_them(model: str, built: int) -> None:
    """Counted 2026-11-25: NeMo AutoModel 0.7.0's own classes, from public copies of each config.json."""
    recipe = BOOK.recipe(model)
    assert recipe.head.parameters(recipe.target) == pytest.approx(built, rel=1e-3)


def test_the_utilization_gives_back_the_paper_s_seconds() -> None:
    recipe = BOOK.recipe("gpt-oss-120b")
    operations = operations_per_token(recipe, recipe.head, TrainingLoad(2048, 1, 0.8, 0.2)) * 128 * 2048
    seconds = operations / (8 * BOOK.speeds.teraflops["H200"] * 1e12 * BOOK.speeds.utilization)
    assert seconds == pytest.approx(17.5, rel=0.01)


def options(model: str, price: PriceEntry | None = None) -> list[TrainingOption]:
    return training_options(
        BOOK.recipe(model), load_catalog(), BOOK, lambda _: (price, str(price)), lengths=(20_480,)
    )


def test_a_dense_target_fits_20480_tokens_because_it_is_sharded() -> None:
    by_name = {one.instance_type: one for one in options("gemma-4-31b-it")}
    assert [name for name, one in by_name.items() if one.fits] == ["ml.p6-b300.48xlarge"]
    assert "over 8 GPUs" in by_name["ml.p6-b300.48xlarge"].lines[0]


@pytest.mark.parametrize(
    ("model", "given", "expected"),
    [
        ("gemma-4-31b-it", {}, {"target_shards": 8}),
        ("gpt-oss-20b", {}, {"expert_parallel_size": 8}),
        ("gemma-4-31b-it", {"target_shards": 4}, {"target_shards": 4}),
        ("gpt-oss-20b", {"target_shards": 8}, {"target_shards": 8}),
    ],
)
def test_the_target_is_shared_one_way(model: str, given: dict[str, int], expected: dict[str, int]) -> None:
    values = chosen(TrainSpec.model_validate(given), BOOK.recipe(model), warm=True, gpus=8)
    assert {name: values[name] for name in values if name in SHARING} == expected
    assert not set(SHARING) & set(chosen(TrainSpec(), BOOK.recipe(model), warm=True, gpus=1))


def test_a_price_comes_with_its_source_and_date() -> None:
    price = PriceEntry(
        instance="ml.p6-b300.48xlarge",
        region="us-east-1",
        usd_per_hour=10,
        kind="sagemaker",
        source="a list",
        date="2026-11-26",
    )
    last = options("gpt-oss-20b", price)[-1]
    assert last.usd == pytest.approx(10 * (last.hours or 0))
    assert all(words in last.price for words in ("10.00 USD/hour", "a list", "2026-11-26"))


def test_an_upper_bound_and_an_unknown_price_say_so() -> None:
    kind = "ml.p6-b300.48xlarge"
    ec2 = PriceEntry(instance=kind, region="us-east-1", usd_per_hour=10, kind="ec2", source="a", date="b")
    last = options("gpt-oss-20b", ec2)[-1]
    assert (last.usd, last.at_most) == (pytest.approx(12.5 * (last.hours or 0)), True)
    assert last.price.startswith("at most 12.50 USD/hour")
    unknown = options("gpt-oss-20b")[-1]
    assert (unknown.usd, unknown.price.startswith("unknown")) == (None, True)


@given(st.integers(64, 40_000), st.sampled_from([1, 2, 4, 8, 16]))
def test_more_partitions_never_need_more_and_more_tokens_never_less(tokens: int, parts: int) -> None:
    recipe = BOOK.recipe("gpt-oss-120b")

    def need(length: int, partitions: int) -> float:
        load = TrainingLoad(length, partitions, 0.8, 0.2, checkpointing=True)
        return memory_of(recipe.target, recipe.head, load, TrainingMachine(8, 141, "H200"), 8).needed_gb

    assert need(tokens, 2 * parts) <= need(tokens, parts) <= need(tokens + 100, parts)


@given(
    st.floats(0.01, 200, allow_nan=False),
    st.integers(1, 16),
    st.floats(0.01, 100, allow_nan=False),
    st.floats(0.01, 10_000, allow_nan=False),
)
def test_no_job_above_its_budget_passes_and_the_advised_hours_keep_it(
    price: float, count: int, hours: float, budget: float
) -> None:
    train = TrainSpec(instance_count=count, max_hours=hours, budget_usd=budget)
    training_price = TrainingPrice(price, count, hours, False, "test")
    rows = list(price_findings(train, training_price))
    assert bool(rows) == (price * count * hours > budget)
    if rows and "or less" in rows[0].next_step:
        advised = float(rows[0].next_step.split("max_hours to ")[1].split(" ")[0])
        assert price * count * advised <= budget * (1 + 1e-9)


def test_an_unknown_price_is_asked_for() -> None:
    (found,) = price_findings(TrainSpec(), TrainingPrice(None, 1, 8, False, "no price"))
    assert found.severity == "error"
    assert "train.usd_per_hour" in found.next_step


@given(st.from_regex(r"[a-z0-9][a-z0-9-]{0,30}[a-z0-9]", fullmatch=True), st.integers(1, 99))
def test_an_attempt_is_read_back_from_its_name(base: str, attempt: int) -> None:
    assert attempt_of(attempt_name(base, attempt), base) == attempt


def test_other_jobs_names_are_no_attempts() -> None:
    assert [
        attempt_of(name, "a-0123456789") for name in ("a-01234567890", "b-0123456789", "a-0123456789-x")
    ] == ([None, None, None])


def test_the_trainer_s_lines_are_read_and_the_last_of_a_step_counts() -> None:
    texts = [
        "2026 INFO peagle-train step=5/50 epoch=1 loss=2.5 accuracy_1=0.5",
        "peagle-train step=5/50 epoch=1 loss=2.0 accuracy_1=0.6 accuracy_2=0.3 learning_rate=1e-4",
        "peagle-train validation step=5 loss=0.9",
        "peagle-train checkpoint step=5",
        "loss=3",
    ]
    training, validation, checkpoint = read_lines(texts)
    assert (training.figures["loss"], training.steps) == (2.0, 50)
    assert training.depth_accuracies() == {1: 0.6, 2: 0.3}
    assert (validation.kind, validation.figures) == ("validation", {"loss": 0.9})
    assert (checkpoint.kind, checkpoint.step) == ("checkpoint", 5)


@given(st.text())
def test_no_line_breaks_the_reader(text: str) -> None:
    read_line(text)
    read_line(f"peagle-train {text}")


def test_aws_takes_the_metric_definitions() -> None:
    result = metric_definitions(32)
    assert len(result) <= 40
    assert all(len(one["Regex"]) <= 500 for one in result)


def test_all_that_is_wrong_in_a_spec_is_told_with_its_line() -> None:
    text = "name: a b\ntarget: {model: tiny-code}\nbucket: b\ntrain:\n  spoot: true\n  subnets: [subnet-1]\n"
    with pytest.raises(SpecError) as caught:
        parse_learn_spec(text, "learn.yaml")
    message = str(caught.value)
    assert "line 1: name" in message
    assert "line 3: bucket: found 'b'; allowed: s3://BUCKET" in message
    assert "line 5: unknown field 'train.spoot'" in message
    assert "Did you mean 'spot'?" in message


def test_a_comma_in_a_text_of_a_nested_list_is_explained() -> None:
    text = (
        "name: a\ntarget: {model: tiny-code}\nbucket: s3://b/p\ndata:\n  self_written:\n"
        "  - {count: 300, system: Answers about history, science, health.}\n"
    )
    with pytest.raises(SpecError) as caught:
        parse_learn_spec(text, "learn.yaml")
    assert "line 6: unknown field 'data.self_written.0.science'" in caught.value.message
    assert "allowed here: answer_temperature, category, count, system, temperature." in caught.value.message
    assert "'data.self_written.0.system' in quotes" in str(caught.value.next_step)
