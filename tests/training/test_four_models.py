"""The recipes of the four models against the library's own classes, without weights.

Each model's public config.json, the hyperparameters that `peagle-sm learn train` sends, and the trainer's own
set-up, with target and head on torch's meta device in their full size. What values would be needed for is not
run: no forward pass, and no target spread over real GPUs.
"""

from __future__ import annotations

import json
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from peagle_learn.core.memory import TrainingLoad, charged_rows_of, rows_of
from peagle_learn.core.price import TrainingPrice
from peagle_learn.core.recipes import head_sizes, load_recipes
from peagle_learn.core.spec import LearnSpec
from peagle_learn.core.training_plan import LearnPlan, make_training_plan
from peagle_learn.core.training_request import ChannelFacts, TrainingFacts
from peagle_sm.core.catalog import load_catalog
from sagemaker_local.engine.trainer_env import ensure_trainer
from sagemaker_local.paths import weights_dir
from tests.training.support import Job, document, lines
from tests.training.test_trainer import checked

pytestmark = [pytest.mark.engine, pytest.mark.slow, pytest.mark.campaign]

CHECK = Path(__file__).with_name("four_models_check.py")
# The recipe names the mask token where it is known. Elsewhere the spec must: here the last of the vocabulary.
MASK_TOKEN = {"gpt-oss-20b": 201_087, "gpt-oss-120b": 201_087, "qwen3-coder-30b-a3b-instruct": 151_935}
CLASSES = {
    "gpt-oss-20b": ["GptOssConfig", "GptOssForCausalLM", "GptOssEagle3DraftModel"],
    "gpt-oss-120b": ["GptOssConfig", "GptOssForCausalLM", "GptOssEagle3DraftModel"],
    "qwen3-coder-30b-a3b-instruct": ["Qwen3MoeConfig", "Qwen3MoeForCausalLM", "LlamaEagle3DraftModel"],
    "gemma-4-31b-it": ["Gemma4Config", "Gemma4ForConditionalGeneration", "Gemma4Eagle3DraftModel"],
}


def planned(model: str) -> LearnPlan:
    """The plan of a head from nothing: its hyperparameters are the recipe's."""
    train = {"mask_token_id": MASK_TOKEN[model]} if model in MASK_TOKEN else {}
    given = {"name": "four", "target": {"model": model}, "bucket": "s3://b/p", "head": "none", "train": train}
    spec = LearnSpec.model_validate(given)
    recipe = load_recipes().recipe(model)
    facts = TrainingFacts(
        account="111122223333",
        region="us-east-1",
        now=datetime(2026, 11, 25, tzinfo=UTC),
        local=False,
        recipe=recipe,
        target_uri="s3://b/target/",
        target_digest="",
        target_bytes=int(recipe.target.weights_bytes),
        head_uri=None,
        head_digest="",
        training=ChannelFacts("s3://b/training/", "", 0),
        validation=None,
        instance_type=recipe.instance_type,
        instance=load_catalog().instances[recipe.instance_type],
        price=TrainingPrice(0.0, 1, spec.train.max_hours, False, "none"),
        image="image",
        role_arn="role",
    )
    return make_training_plan(spec, facts)


@pytest.mark.parametrize("model", CLASSES)
def test_the_library_builds_what_the_recipe_says(model: str, tmp_path: Path) -> None:
    plan = planned(model)
    assert [each.message for each in plan.errors] == []
    job = Job(tmp_path, plan.request.parameters["HyperParameters"])
    job.prepare()
    job.write("training", lines([document(0)]))
    shutil.copytree(
        weights_dir() / "target", job.data / "target", ignore=shutil.ignore_patterns("*.safetensors")
    )
    python = ensure_trainer(lambda line: print(line, file=sys.stderr))
    instance = plan.facts.instance
    assert instance is not None
    answer = json.loads(checked(python, CHECK, model, tmp_path, instance.gpu_count))
    recipe, values = plan.facts.recipe, plan.values
    target, head = recipe.target, head_sizes(recipe, values)
    print(model, answer, f"{target.parameters_billions} {head.parameters(target):,.0f}")

    assert answer["classes"] == CLASSES[model]
    assert answer["sizes"] == [target.hidden_size, target.layers, target.vocabulary]
    assert answer["target"] / 1e9 == pytest.approx(target.parameters_billions, rel=0.02)
    assert answer["head"] == pytest.approx(head.parameters(target), rel=0.001)
    assert answer["layers"] == head.layers
    size = head.head_dim
    assert answer["shape"] == [head.attention_heads * size, head.kv_heads * size, head.intermediate_size]
    assert answer["served"] == [head.attention_heads, head.kv_heads, size]
    assert answer["depths"] == [head.depths] * 2
    assert answer["mask_token"] == [values["mask_token_id"]] * 2
    assert answer["mask_token"][0] < target.vocabulary
    assert answer["read"] == list(recipe.auxiliary_layers)
    assert answer["parts"] == values["sequence_partitions"]
    assert answer["rows"] == pytest.approx(rows_of(TrainingLoad.of(values), head.depths), rel=0.01)
    charged = charged_rows_of(TrainingLoad.of(values), head.depths)
    assert 0.9 * charged < answer["charged"] <= charged
    assert answer["expert_parallel"] == values.get("expert_parallel_size", 1)
    assert answer["target_shards"] == values.get("target_shards", 1)
    if answer["target_shards"] > 1:
        assert answer["of_one_gpu"] == pytest.approx(answer["target"] / answer["target_shards"], rel=0.01)
