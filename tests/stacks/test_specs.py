"""What `cdk -c` may say, and how it is told what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from peagle_sm.core.errors import PlanRefused, SpecError
from peagle_sm.core.spec.endpoint_spec import parse_spec
from stacks.specs import StandIns, plan_for, read_context
from tests.stacks.support import EXAMPLES, REGION, ROOT, stand_ins

SPEC = "name: one\nmodel: gpt-oss-20b\n"


def _write(folder: Path, name: str, text: str = SPEC) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_without_a_spec_there_is_only_the_guard() -> None:
    assert read_context({"aws:cdk:enable-path-metadata": True, "@aws-cdk/core:x": "y"}).specs == ()


def test_without_a_spec_the_one_in_the_folder_counts(tmp_path: Path) -> None:
    own = Path(_write(tmp_path, "peagle.yaml"))
    other = _write(tmp_path, "other.yaml", SPEC.replace("one", "two"))
    assert read_context({}, tmp_path / "absent.yaml").specs == ()
    assert [spec.name for spec in read_context({}, own).specs] == ["one"]
    assert [spec.name for spec in read_context({"spec": other}, own).specs] == ["two"]


def test_the_image_is_built_where_it_is_asked_for() -> None:
    assert [read_context(given).image for given in ({}, {"image": "off"}, {"image": "on"})] == [
        False,
        False,
        True,
    ]


def test_several_files_and_folders(tmp_path: Path) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    _write(folder, "b.yml", SPEC.replace("one", "two"))
    _write(folder, "c.yaml", SPEC.replace("one", "three"))
    _write(folder, "notes.txt", "not a spec")
    wanted = read_context({"spec": f"{_write(tmp_path, 'a.yaml')}, {folder}"})
    assert [spec.name for spec in wanted.specs] == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ({"spce": "a.yaml"}, ["'spce'", "Did you mean 'spec'?"]),
        ({"spec": ""}, ["spec: found ''"]),
        ({"spec": "missing.yaml"}, ["missing.yaml", "No such file"]),
        ({"spec": ["a.yaml"]}, ["spec: found ['a.yaml']"]),
        ({"image": "yes"}, ["image: found 'yes'", "on, off"]),
        ({"email": "nobody"}, ["email: found 'nobody'"]),
        ({"stand_ins": {"images": {}}}, ["'stand_ins.images'", "artifacts, image_uris"]),
        ({"stand_ins": {"artifacts": {"target": 1}}}, ["stand_ins.artifacts.target: found 1"]),
    ],
)
def test_a_context_that_cannot_be_meant(context: dict[str, object], words: list[str], tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read_context(context)
    message = str(caught.value)
    assert [word for word in words if word not in message] == []
    assert caught.value.next_step


def test_two_specs_with_one_name_are_named_both(tmp_path: Path) -> None:
    first, second = _write(tmp_path, "a.yaml"), _write(tmp_path, "b.yaml")
    for value in (f"{first},{second}", str(tmp_path), f"{first},{first}"):
        with pytest.raises(SpecError, match=r"found 'one' in both .*a\.yaml and .*\.yaml"):
            read_context({"spec": value})


def test_a_folder_without_a_spec(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="the folder has no spec"):
        read_context({"spec": str(tmp_path)})


def test_two_regions_are_two_runs(tmp_path: Path) -> None:
    _write(tmp_path, "a.yaml", SPEC + "placement: {region: us-east-1}\n")
    _write(tmp_path, "b.yaml", SPEC.replace("one", "two") + "placement: {region: eu-west-1}\n")
    with pytest.raises(SpecError, match=r"eu-west-1 in .*b\.yaml, us-east-1 in .*a\.yaml"):
        read_context({"spec": str(tmp_path)})


def test_a_plan_that_is_refused_is_not_made_into_a_stack() -> None:
    spec = parse_spec("name: one\nmodel: gemma-4-31b-it\nsource: jumpstart\n")
    with pytest.raises(PlanRefused, match=r"one: the plan is refused: .*huggingface-vlm-gemma-4-31b-it"):
        plan_for(spec, REGION, StandIns())


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_can_be_planned_in_a_clean_clone(path: Path) -> None:
    (spec,) = read_context({"spec": str(path)}).specs
    assert plan_for(spec, REGION, stand_ins()).requests


def test_a_role_of_another_account_is_refused_where_the_cdk_names_the_account() -> None:
    (spec,) = read_context({"spec": "docs/examples/gpt-oss-20b.yaml"}).specs
    with pytest.raises(PlanRefused, match="execution_role_arn: found account 123456789012"):
        plan_for(spec, REGION, stand_ins(), {"CDK_DEFAULT_ACCOUNT": "999999999999"})
    assert plan_for(spec, REGION, stand_ins(), {"CDK_DEFAULT_ACCOUNT": "123456789012"}).requests


@pytest.mark.slow
def test_cdk_json_names_the_local_servers_own_addresses() -> None:
    from sagemaker_local.contents.seed import image_uris, own_addresses  # brings moto along
    from sagemaker_local.contents.smollm2 import smollm2_address

    assert stand_ins().image_uris.items() <= image_uris().items()
    addresses = [*own_addresses(REGION), smollm2_address(REGION)]
    assert stand_ins().artifacts == {address.part: address.uri for address in addresses}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("context", "code"),
    [
        ({"spce": "peagle.yaml"}, 2),
        ({"spec": "several-faults.yaml"}, 2),
        ({"spec": "refused.yaml"}, 3),
    ],
)
def test_the_app_fails_with_one_line(tmp_path: Path, context: dict[str, str], code: int) -> None:
    _write(tmp_path, "several-faults.yaml", "name: -\nmodels: x\nlifecycle: {idle_minutes: 1}\n")
    _write(tmp_path, "refused.yaml", "name: one\nmodel: gemma-4-31b-it\nsource: jumpstart\n")
    ran = subprocess.run(
        [sys.executable, str(ROOT / "app.py")],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "toolkit" / "peagle-sm")]),
            "CDK_CONTEXT_JSON": json.dumps(context),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == code
    assert ran.stdout == ""
    assert ran.stderr.startswith("error: ")
    assert ran.stderr.count("\n") == 1
