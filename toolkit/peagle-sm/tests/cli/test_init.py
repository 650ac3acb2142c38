from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from peagle_sm.cli.commands.planning.rendering import render_spec
from peagle_sm.core.catalog import load_catalog
from peagle_sm.core.spec.endpoint_spec import AutoscalingSpec, EndpointSpec, json_schema, parse_spec
from peagle_sm.core.spec.modes import MODES, Mode, facts_of
from tests.cli.running import run

WITH_HEADS = [
    (name, mode)
    for name in load_catalog().models
    for mode in MODES
    if not facts_of(mode).has_weights
    or any(head.method == mode for head in load_catalog().heads_for(name).values())
]


@pytest.mark.parametrize(("model", "mode"), WITH_HEADS)
def test_each_model_and_mode_gives_a_valid_spec_with_the_catalogues_figures(
    in_empty_folder: Path, model: str, mode: Mode
) -> None:
    result = run("init", model, "--mode", mode)
    assert result.exit_code == 0, result.stderr
    spec = parse_spec((in_empty_folder / "peagle.yaml").read_text())
    assert (spec.name, spec.model_name, spec.speculation.mode) == (f"{model}-{mode}", model, mode)
    facts, figures = facts_of(mode), load_catalog().models[model].default_num_speculative_tokens
    tokens = figures.get(mode, facts.draft_tokens) if facts.speculates else None
    assert spec.speculation.num_speculative_tokens == tokens
    assert (spec.speculation.draft_head in load_catalog().heads_for(model)) == facts.has_weights


@pytest.mark.parametrize(
    ("arguments", "source", "head"),
    [
        (["gemma-4-31b-it"], "jumpstart", None),  # its P-EAGLE head is in JumpStart alone
        (["gemma-4-31b-it", "--draft-head", "s3://b/mine"], "container", "mine"),
        (["gpt-oss-20b"], "jumpstart", "gpt-oss-20b-p-eagle"),
        (["gpt-oss-20b", "--mode", "eagle3"], "container", "gpt-oss-20b-eagle3"),  # not JumpStart's
        (["gpt-oss-20b", "--mode", "ngram"], "jumpstart", None),
    ],
)
def test_the_source_is_where_the_head_is(
    in_empty_folder: Path, arguments: list[str], source: str, head: str | None
) -> None:
    result = run("init", *arguments)
    assert result.exit_code == 0, result.stderr
    spec = parse_spec(Path("peagle.yaml").read_text())
    assert (spec.source, spec.speculation.draft_head) == (source, head)


def test_a_model_of_ones_own(in_empty_folder: Path) -> None:
    (in_empty_folder / "model").mkdir()
    (in_empty_folder / "sub").mkdir()
    Path("model/config.json").write_text("{}")
    head = ("--draft-head", "s3://b/mine-head", "--mode", "eagle3")
    result = run("init", "My.Llama_8B", "--config", "model", *head, "-o", "sub/x.yaml")
    assert result.exit_code == 0, result.stderr
    spec = parse_spec(Path("sub/x.yaml").read_text())
    assert spec.own_model is not None
    assert (spec.own_model.name, spec.own_model.config) == ("My.Llama_8B", "../model")
    assert (spec.name, spec.source) == ("My-Llama-8B-eagle3", "container")
    assert (spec.head_uri, spec.speculation.draft_head) == ("s3://b/mine-head/", "mine-head")
    assert spec.speculation.num_speculative_tokens == 3
    assert spec.placement.instance_types == []
    plain = run("init", "other", "--config", "Qwen/Qwen3-0.6B", "--mode", "none")
    assert plain.exit_code == 0, plain.stderr
    assert parse_spec(Path("peagle.yaml").read_text()).own_model is not None


def test_a_model_of_ones_own_needs_its_own_head(in_empty_folder: Path) -> None:
    result = run("init", "mine", "--config", "Qwen/Qwen3-0.6B")
    assert result.exit_code == 2
    assert "--draft-head s3://" in result.stderr
    assert run("init", "--config", "Qwen/Qwen3-0.6B").exit_code == 2


def test_what_it_prints_and_writes(in_empty_folder: Path) -> None:
    result = run("init", "tiny-code")
    wrote = "wrote peagle.yaml and peagle.schema.json\nnext:  peagle-sm plan peagle.yaml --local\n"
    assert result.stdout == wrote, "the stand-in model is tried on this machine"
    assert Path("peagle.yaml").read_text().startswith("# yaml-language-server: $schema=peagle.schema.json\n")
    assert json.loads(Path("peagle.schema.json").read_text()) == json_schema()


@pytest.mark.parametrize(
    ("options", "flags"),
    [((), ""), (("--local",), " --local"), (("--region", "eu-west-1"), " --region eu-west-1")],
)
def test_the_next_step_goes_where_this_one_went(
    in_empty_folder: Path, options: tuple[str, ...], flags: str
) -> None:
    result = run("init", "gpt-oss-20b", *options)
    assert result.stdout.endswith(f"next:  peagle-sm plan peagle.yaml{flags}\n")


@pytest.mark.parametrize("model", ["gpt-oss-120b", "gemma-4-31b-it"])
def test_a_model_whose_jumpstart_files_the_catalogue_lacks_is_locked_first(
    in_empty_folder: Path, model: str
) -> None:
    steps = run("init", model).stdout.partition("next: ")[2].splitlines()
    assert [step.split() for step in steps] == [
        ["peagle-sm", command, "peagle.yaml"] for command in ("lock", "plan")
    ]


@pytest.mark.parametrize(
    ("output_format", "expected"),
    [
        ("json", {"name": "a", "spec": "sub/x.yaml", "schema": "sub/peagle.schema.json"}),
        ("quiet", "sub/x.yaml\n"),
    ],
)
def test_other_formats_and_another_file(in_empty_folder: Path, output_format: str, expected: object) -> None:
    Path("sub").mkdir()
    result = run("init", "tiny-code", "--name", "a", "-o", "sub/x.yaml", "--format", output_format)
    assert (json.loads(result.stdout) if output_format == "json" else result.stdout) == expected


def test_it_does_not_overwrite(in_empty_folder: Path) -> None:
    Path("peagle.yaml").write_text("mine")
    result = run("init", "tiny-code")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: peagle.yaml already exists, and may contain your changes\n"
        "  next: add --force to overwrite it, or write another file with --output FILE\n"
    )
    assert Path("peagle.yaml").read_text() == "mine"
    assert run("init", "tiny-code", "--force").exit_code == 0
    assert Path("peagle.yaml").read_text() != "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no MODEL was given"),
        (["tiny-cod"], "tiny-code"),
        (["qwen3-8b", "--mode", "mtp"], "the catalogue has no drafter of mode mtp for qwen3-8b"),
        (["tiny-code", "--name", "-bad"], "name"),
        (["tiny-code", "-o", "missing/x.yaml"], "missing/x.yaml: cannot be written"),
    ],
)
def test_bad_input_is_refused_with_a_remedy_and_writes_nothing(
    in_empty_folder: Path, arguments: list[str], message: str
) -> None:
    result = run("init", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "next: " in result.stderr
    assert list(in_empty_folder.iterdir()) == []


def test_the_region_option_goes_into_the_spec(in_empty_folder: Path) -> None:
    run("init", "tiny-code", "--region", "eu-west-1")
    assert parse_spec(Path("peagle.yaml").read_text()).placement.region == "eu-west-1"


def test_every_field_is_in_the_file_and_uncommented_it_is_the_default() -> None:
    text = render_spec({"name": "a", "model": "tiny-code"}, file="f", schema="s")
    body = text.split("\n\n", 1)[1]
    # Take one comment mark from each line: explanations become YAML that is no mapping, so keep fields only.
    bare = [line[2:] if line.startswith("# ") else line for line in body.splitlines()]
    fields = [line for line in bare if line and not line.lstrip().startswith("#") and _is_field(line)]
    data = yaml.safe_load("\n".join(line for line in fields if not line.startswith("#   ")))
    assert data.pop("name") == "a"
    assert data.pop("model") == "tiny-code"
    security = data.pop("security")
    assert security == {"network_isolation": True, "kms_key_id": None}
    assert AutoscalingSpec(**data.pop("autoscaling")) == AutoscalingSpec()  # left out as a whole by default
    assert EndpointSpec(name="a", model="tiny-code", security=security, **data) == EndpointSpec(
        name="a", model="tiny-code"
    )
    assert set(data) | {"name", "model", "security", "autoscaling"} == set(EndpointSpec.model_fields)


def _is_field(line: str) -> bool:
    name = line.strip().split(":", 1)[0]
    return ":" in line and name.replace("_", "").isalnum() and name == name.lower()
