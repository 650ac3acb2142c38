"""Where a spec's own model is read: a folder, S3, the hub; its weights' size; its lock; synth without AWS."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peagle_bench.compare.arms import spec_of
from peagle_sm.aws.session.session import Session
from peagle_sm.aws.storage.downloads import Hub
from peagle_sm.core.errors import NotFound, PeagleError, PlanRefused, SpecError
from peagle_sm.core.own_models import catalog_for
from peagle_sm.core.plan.resolve import HeadSize
from peagle_sm.core.spec.endpoint_spec import EndpointSpec
from peagle_sm.service.jumpstart_lock import make_lock, write_lock
from peagle_sm.service.own_models import with_own_entries
from peagle_sm.service.spec_to_plan import load_spec, plan_for
from stacks.specs import StandIns
from stacks.specs import plan_for as stack_plan
from tests.hub_server import LocalHub, local_hub

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
INDEX = "model.safetensors.index.json"
_numbers = itertools.count(1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model beside the spec: config and index, no weights."""
    total = tmp_path / "model"
    total.mkdir()
    (total / "config.json").write_text(json.dumps(CONFIG))
    index = {"metadata": {"total_size": 269_030_016}, "weight_map": {"a": "model-1.safetensors"}}
    (total / INDEX).write_text(json.dumps(index))
    return total


@pytest.fixture
def hub() -> Iterator[LocalHub]:
    with local_hub() as server:
        yield server


def write(path: Path, config: str = "model", **more: Any) -> Path:
    """Write a spec whose model's config is at a place."""
    fields = {
        "name": "own",
        "model": {"name": "mine", "config": config, "license": "mit"},
        "model_uri": "s3://bucket/target/",
        "speculation": {"mode": "none"},
        **more,
    }
    path.write_text(json.dumps(fields))
    return path


def weights_gb(spec: EndpointSpec) -> float | None:
    return catalog_for(spec).model("mine").weights_gb


def test_a_folder_is_relative_to_the_spec(folder: Path, tmp_path: Path) -> None:
    for place in ("model", "model/config.json", str(folder)):
        spec = load_spec(write(tmp_path / "spec.yaml", place))
        assert weights_gb(spec) == pytest.approx(0.269030016)


def test_only_the_indexs_files_count(folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "spec.yaml")
    (folder / "consolidated.safetensors").write_bytes(b"x" * 5000)
    (folder / "model-1.safetensors").write_bytes(b"x" * 3000)
    assert weights_gb(load_spec(path)) == 3000 / 1e9
    (folder / INDEX).unlink()
    assert weights_gb(load_spec(path)) == 3000 / 1e9
    (folder / "model-1.safetensors").unlink()
    (folder / "consolidated.safetensors").unlink()
    assert weights_gb(load_spec(path)) is None


def test_an_index_says_the_parameters_of_an_unknown_architecture(folder: Path, tmp_path: Path) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, "model_type": "brand_new"}))
    metadata = {"total_size": 269_030_016, "total_parameters": 134_515_008}
    (folder / INDEX).write_text(json.dumps({"metadata": metadata}))
    entry = catalog_for(load_spec(write(tmp_path / "spec.yaml"))).model("mine")
    assert (entry.parameters_b, entry.weights_gb) == (0.134515008, 0.269030016)


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n"
WRONG: list[tuple[str, dict[str, str], str]] = [
    ("gone", {}, "no such file"),
    ("gone/config.json", {}, "no such file"),
    ("model", {}, "has no config.json"),
    ("model", {"m.gguf": "GGUF"}, "GGUF"),
    ("model", {"adapter_config.json": "{}"}, "LoRA adapter"),
    ("model/m.gguf", {}, "GGUF"),
    ("model", {"config.json": POINTER}, "not JSON"),
    ("model", {"config.json": "[1]"}, "JSON object"),
    ("model/config.json", {"config.json": "{"}, "not JSON"),
    ("model/weights.bin", {"weights.bin": "x"}, "not a config.json"),
]


@pytest.mark.parametrize(("place", "files", "message"), WRONG)
def test_a_bad_config_is_named_with_its_field(
    place: str, files: dict[str, str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "model").mkdir()
    for name, text in files.items():
        (tmp_path / "model" / name).write_text(text)
    with pytest.raises(SpecError) as caught:
        catalog_for(load_spec(write(tmp_path / "spec.yaml", place)))
    assert caught.value.message.startswith("model.config: ")
    assert message in caught.value.message
    assert caught.value.next_step


def test_the_size_of_an_own_head_is_that_of_its_files(local: Session, tmp_path: Path) -> None:
    s3, bucket = local.client("s3"), f"own-heads-{next(_numbers)}"
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="m/config.json", Body=json.dumps(CONFIG).encode())
    s3.put_object(Bucket=bucket, Key="h/model.safetensors", Body=b"x" * 5000)

    def head_size(prefix: str) -> HeadSize:
        drafting = {"mode": "eagle3", "draft_head": f"s3://{bucket}/{prefix}"}
        path = write(tmp_path / "spec.yaml", f"s3://{bucket}/m/", speculation=drafting)
        return plan_for(load_spec(path), local).draft.head_size

    assert head_size("h") == HeadSize(5000 / 1e9)
    missing = head_size("gone")
    assert "estimate" in missing.how
    assert missing.gb > 0.05


def test_from_s3_and_what_s3_lacks(local: Session, tmp_path: Path) -> None:
    s3, bucket = local.client("s3"), f"own-models-{next(_numbers)}"
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="m/config.json", Body=json.dumps(CONFIG).encode())
    s3.put_object(Bucket=bucket, Key="m/model.safetensors", Body=b"x" * 4000)
    for place in (f"s3://{bucket}/m/", f"s3://{bucket}/m", f"s3://{bucket}/m/config.json"):
        plan = plan_for(load_spec(write(tmp_path / "spec.yaml", place)), local)
        assert weights_gb(plan.spec) == 4000 / 1e9
        assert plan.requests
    with pytest.raises(NotFound) as caught:
        plan_for(load_spec(write(tmp_path / "spec.yaml", f"s3://{bucket}/gone/")), local)
    assert str(caught.value).startswith("model.config: ")


def test_from_the_hub_with_its_licence(local: Session, folder: Path, hub: LocalHub, tmp_path: Path) -> None:
    hub.add("team/model", folder, licence="mit")
    spec = load_spec(
        write(tmp_path / "spec.yaml", "team/model", model={"name": "mine", "config": "team/model"})
    )
    assert spec.own_facts is not None
    assert spec.own_facts.place == ""
    client = Hub(hub.url, "none", lambda seconds: None)
    entry = catalog_for(with_own_entries(spec, tmp_path, local, lambda: client)).model("mine")
    assert (entry.weights_gb, entry.licence) == (pytest.approx(0.269030016), "mit")
    missing = load_spec(write(tmp_path / "spec.yaml", "team/gone"))
    with pytest.raises(PeagleError) as caught:
        with_own_entries(missing, tmp_path, local, lambda: client)
    assert str(caught.value).startswith("model.config: ")


def test_a_stack_is_planned_from_a_folder_and_asks_for_one_otherwise(folder: Path, tmp_path: Path) -> None:
    plan = stack_plan(load_spec(write(tmp_path / "spec.yaml")), "us-east-1", StandIns())
    assert plan.memory is not None
    assert plan.memory.weights_gb == pytest.approx(0.269030016)
    with pytest.raises(PlanRefused) as caught:
        stack_plan(load_spec(write(tmp_path / "spec.yaml", "s3://bucket/m/")), "us-east-1", StandIns())
    assert "model.config" in caught.value.message
    assert "config.json" in str(caught.value.next_step)


def test_an_arm_of_a_comparison_keeps_what_was_read(folder: Path, tmp_path: Path) -> None:
    base = load_spec(write(tmp_path / "spec.yaml"))
    arm = spec_of(base, "eagle3", head="mine-head", head_uri="s3://bucket/h/")
    assert weights_gb(arm) == weights_gb(base) is not None
    assert arm.own_model == base.own_model


def test_any_jumpstart_id_is_locked_and_planned(local: Session, tmp_path: Path) -> None:
    model = {"name": "mine", "jumpstart": "openai-reasoning-gpt-oss-20b"}
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps({"name": "own", "model": model, "accept_eula": True}))
    write_lock(make_lock(load_spec(path, locks=False), path, local, environ={}))
    plan = plan_for(load_spec(path), local)
    assert plan.requests, plan.errors()
    assert plan.lock is not None
    assert plan.lock.jumpstart.model_id == "openai-reasoning-gpt-oss-20b"
    path.write_text(json.dumps({"name": "own", "model": {"name": "mine", "jumpstart": "no-such-model"}}))
    assert any("no-such-model" in one.message for one in plan_for(load_spec(path), local).errors())
    with pytest.raises(NotFound, match="no-such-model"):
        make_lock(load_spec(path, locks=False), path, local, environ={})
