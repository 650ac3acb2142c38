"""`peagle-sm init`, `cdk init`: write a spec with its schema, and the CDK app.

`init` writes the schema beside the spec, so that editors check it. `cdk init` is for users of the wheel: a
clone of the project already has the same app.py.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from peagle_sm.aws.files import CannotWrite, write_file
from peagle_sm.cli.base import Command, Entry, LazyGroup, State, global_options
from peagle_sm.cli.console import emit, to_json
from peagle_sm.core.errors import SpecError
from peagle_sm.core.spec.modes import DRAFT_TOKENS, MODES, Mode, facts_of

if TYPE_CHECKING:
    from peagle_sm.core.catalog import Catalog


SCHEMA_NAME = "peagle.schema.json"


@click.command(cls=Command)
@click.argument("model", required=False)
@click.option("--mode", type=click.Choice(MODES), default="p-eagle", help="Speculation mode.")
@click.option("--name", help="Endpoint name.  [default: MODEL-MODE]")
@click.option(
    "--draft-head",
    help="Draft head: an id of the catalogue, or the S3 prefix of your own.  [default: the catalogue's]",
)
@click.option(
    "--config",
    metavar="PLACE",
    help="config.json of a model that the catalogue lacks: a folder, s3://… or OWNER/NAME on the hub.",
)
@click.option(
    "--output",
    "-o",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    default="peagle.yaml",
    help="File to write.",
)
@click.option("--force", is_flag=True, help="Overwrite the file.")
@global_options
@click.pass_obj
def init(
    state: State,
    model: str | None,
    mode: Mode,
    name: str | None,
    draft_head: str | None,
    config: str | None,
    path: Path,
    force: bool,
) -> None:
    """Write a commented peagle.yaml for a model.

    MODEL is an id in the catalogue (`peagle-sm models`), or with --config a name for a model of your own. The
    file contains every field of the spec; fields with default values are commented out. The JSON schema is
    written beside it, for completion and checks in editors.
    """
    from peagle_sm.cli.commands.planning.rendering import render_spec
    from peagle_sm.core.catalog import load_catalog
    from peagle_sm.core.spec.endpoint_spec import json_schema, parse_spec

    catalog = load_catalog()
    model = _named_model(model) if config else _known_model(model, catalog)
    entry = None if config else catalog.models[model]
    source = _source(model, mode, draft_head, catalog)
    speculation = _speculation(model, mode, draft_head, source, catalog)
    types = list(entry.default_instance_types) if entry else []
    region = {"region": state.settings.region} if state.settings.region else {}
    chosen: dict[str, Any] = {
        "name": name or f"{model}-{mode}".replace(".", "-").replace("_", "-")[:63].rstrip("-"),
        "model": {"name": model, "config": _beside(config, path)} if config else model,
        "source": source,
        "speculation": speculation,
        "placement": region | ({"instance_types": types} if types else {}),
        "lifecycle": {"idle_minutes": 60, "max_lifetime_hours": 8.0},
    }
    text = render_spec(chosen, file=str(path), schema=SCHEMA_NAME)
    spec = parse_spec(text, "the options")
    schema = path.with_name(SCHEMA_NAME)
    _write(path, text, force)
    write_file(schema, to_json(json_schema()) + "\n")
    # The models for CPUs are for a first try on this machine.
    flags = state.flags or (" --local" if entry and entry.image == "vllm-cpu" else "")
    # JumpStart's files of most models are not in the catalogue: `lock` reads them, and `plan` needs that.
    unlocked = source == "jumpstart" and model not in catalog.jumpstart
    lock = f"peagle-sm lock {path}{flags}\n       " if unlocked else ""
    emit(
        state,
        table=lambda: f"wrote {path} and {schema}\nnext:  {lock}peagle-sm plan {path}{flags}",
        data=lambda: {"name": spec.name, "spec": str(path), "schema": str(schema)},
        names=[str(path)],
    )


def _beside(config: str, path: Path) -> str:
    """Return a config's place; a file's is relative to the spec."""
    return os.path.relpath(config, path.parent) if Path(config).exists() else config


def _named_model(model: str | None) -> str:
    if model is None:
        raise SpecError(
            "no MODEL was given", next_step="Give a name for your model: peagle-sm init NAME --config PLACE"
        )
    return model


def _known_model(model: str | None, catalog: Catalog) -> str:
    if model is None:
        raise SpecError(
            "no MODEL was given",
            next_step="peagle-sm init smollm2-135m-instruct   (a small chat model, for this machine)",
            details={"allowed": sorted(catalog.models)},
        )
    catalog.model(model)  # raises for an unknown model
    return model


def _source(model: str, mode: Mode, draft_head: str | None, catalog: Catalog) -> str:
    """Return where the model comes from: JumpStart has a P-EAGLE head, others need the container."""
    entry = catalog.models.get(model)
    if entry is None:
        return "container"
    jumpstarts = mode == "p-eagle" and draft_head in (None, entry.default_heads.get(mode))
    other_head = facts_of(mode).has_weights and not jumpstarts
    return "container" if other_head and "container" in entry.sources else entry.sources[0]


def _speculation(
    model: str, mode: Mode, draft_head: str | None, source: str, catalog: Catalog
) -> dict[str, Any]:
    facts = facts_of(mode)
    entry = catalog.models.get(model)
    tokens = entry.default_num_speculative_tokens.get(mode) if entry else None
    if not facts.has_weights:
        return {"mode": mode} | ({DRAFT_TOKENS: tokens or facts.draft_tokens} if facts.speculates else {})
    heads_by_name = catalog.heads_for(model)
    heads = [name for name, head in heads_by_name.items() if head.method == mode]
    jumpstarts = mode == "p-eagle" and source == "jumpstart"
    inside = entry is None and not facts.needs_head  # a model of the user's own may have the weights itself
    if not heads and not (draft_head or inside or jumpstarts):
        methods = {head.method for head in heads_by_name.values()}
        raise SpecError(
            f"the catalogue has no drafter of mode {mode} for {model}",
            next_step="give --draft-head s3://…/ with your own, or another --mode",
            details={
                "found": mode,
                "allowed": [each for each in MODES if each in methods or not facts_of(each).has_weights],
            },
        )
    default_head = entry.default_heads.get(mode) if entry else None
    head = draft_head or default_head or next(iter(heads), None)
    return {"mode": mode, DRAFT_TOKENS: tokens or facts.draft_tokens} | ({"draft_head": head} if head else {})


def _write(path: Path, text: str, force: bool) -> None:
    try:
        write_file(path, text, overwrite=force)
    except FileExistsError as error:
        raise SpecError(
            f"{path} already exists, and may contain your changes",
            next_step="add --force to overwrite it, or write another file with --output FILE",
            details={"path": str(path)},
        ) from error
    except CannotWrite as error:
        error.next_step = f"{error.next_step} Or write another file with --output FILE."
        raise


CDK_ENTRIES = (Entry("init", "commands.planning.init:cdk_init", "Write the CDK app into a folder."),)


@click.group(cls=LazyGroup, entries=CDK_ENTRIES)
@global_options
def cdk() -> None:
    """Write the CDK app, to deploy the stacks yourself."""


@click.command("init", cls=Command)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path("."))
@global_options
@click.pass_obj
def cdk_init(state: State, folder: Path) -> None:
    """Write the CDK app into a folder.

    Writes app.py, cdk.json, requirements.txt, package.json, stacks/ and container/ to FOLDER (default: the
    current folder). A clone of the project does not need this: its app.py is the same.
    """
    from peagle_sm.service.cdk_project import write_project

    written = write_project(folder)
    place = f"cd {folder}\n" if str(folder) != "." else ""
    spec = os.path.relpath("peagle.yaml", folder)  # where `peagle-sm init` writes it
    emit(
        state,
        table=lambda: (
            f"wrote {', '.join(path.name for path in written)} to {folder}\n\nnext:\n{place}"
            "pip install -r requirements.txt\nnpm ci\n"
            f"npx cdk deploy PeagleGuard Peagle-<name> -c spec={spec}"
        ),
        data=lambda: {"folder": str(folder), "written": [str(path) for path in written]},
        names=[str(path) for path in written],
    )
