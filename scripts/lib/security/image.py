"""Rules on a Dockerfile and on what stands beside it; each returns what breaks it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from peagle_sm.core.checks.environment import SECRET_NAME, SECRET_VALUE
from peagle_sm.core.engines import load_forbidden

_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
_ARGUMENT = re.compile(r"\$\{?(\w+)(?::-([^}]*))?\}?")
_INSTALLS = re.compile(r"\bpip3?\s+(?:install|wheel|download)\b|\buv\s+pip\s+(?:install|sync)\b")
_FETCHES = re.compile(r"\b(?:curl|wget)\b")
_CHECKED = re.compile(r"sha256sum\s+(?:--check|-c)\b")


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile, continuation lines joined."""

    line: int
    name: str
    text: str


def instructions(dockerfile: str) -> list[Instruction]:
    """Return the instructions of a Dockerfile, here-documents as part of theirs."""
    found: list[Instruction] = []
    number, lines = 0, dockerfile.splitlines()
    while number < len(lines):
        begun, text = number, lines[number].strip()
        number += 1
        if not text or text.startswith("#"):
            continue
        while text.endswith("\\") and number < len(lines):
            more = lines[number].strip()
            number += 1
            text = text[:-1].rstrip() + ("" if more.startswith("#") else " " + more)
            if more.startswith("#"):
                text += " \\"
        if ending := re.search(r"<<-?[\"']?(\w+)", text):
            while number < len(lines) and lines[number].strip() != ending[1]:
                text += "\n" + lines[number]
                number += 1
            number += 1
        name, _, rest = text.partition(" ")
        found.append(Instruction(begun + 1, name.upper(), rest.strip()))
    return found


def arguments(dockerfile: str) -> dict[str, str]:
    """Return the defaults of a Dockerfile's ARGs."""
    found = {}
    for each in instructions(dockerfile):
        if each.name == "ARG":
            name, _, value = each.text.partition("=")
            found[name.strip()] = value.strip().strip("\"'")
    return found


def bases_by_tag(dockerfile: str) -> list[str]:
    """A base image that is not named by its digest."""
    defaults, stages, broken = arguments(dockerfile), {"scratch"}, []
    for each in instructions(dockerfile):
        if each.name != "FROM":
            continue
        words = [word for word in each.text.split() if not word.startswith("--")]
        base = _ARGUMENT.sub(lambda found: defaults.get(found[1]) or found[2] or "", words[0])
        if base not in stages and not _DIGEST.search(base):
            broken.append(f"line {each.line}: FROM {base or words[0]}")
        if len(words) > 2 and words[1].lower() == "as":
            stages.add(words[2])
    return broken


def runs_as_root(dockerfile: str) -> list[str]:
    """A last stage that ends as root, or never says as whom."""
    defaults, user = arguments(dockerfile), ""
    for each in instructions(dockerfile):
        if each.name == "FROM":
            user = ""
        elif each.name == "USER":
            user = _ARGUMENT.sub(lambda found: defaults.get(found[1]) or found[2] or "", each.text)
    if user.partition(":")[0] in ("", "0", "root"):
        return [f"USER {user}" if user else "no USER"]
    return []


def unhashed_installs(dockerfile: str) -> list[str]:
    """An installation of packages that takes whatever file an index sends."""
    return [
        f"line {each.line}: {command.strip()[:90]}"
        for each in instructions(dockerfile)
        if each.name == "RUN"
        for command in re.split(r"&&|\|\||;|\n", each.text)
        if _INSTALLS.search(command) and "--require-hashes" not in command and "--no-index" not in command
    ]


def unchecked_downloads(dockerfile: str) -> list[str]:
    """A file from an address without a checksum: ADD of one, or curl and wget without sha256sum."""
    broken = []
    for each in instructions(dockerfile):
        if each.name == "ADD" and "://" in each.text and "--checksum=sha256:" not in each.text:
            broken.append(f"line {each.line}: ADD {each.text[:80]}")
        if each.name == "RUN" and _FETCHES.search(each.text) and not _CHECKED.search(each.text):
            broken.append(f"line {each.line}: {each.text[:80]}")
    return broken


def _environment(dockerfile: str) -> Iterator[tuple[int, str, str]]:
    for each in instructions(dockerfile):
        if each.name in ("ENV", "ARG"):
            for name, value in re.findall(r"(\w+)=(\"[^\"]*\"|'[^']*'|\S*)", each.text):
                yield each.line, name, value.strip("\"'")


def forbidden_settings(dockerfile: str) -> list[str]:
    """A setting or a flag that opens the engine."""
    broken = [
        f"line {line}: {name}"
        for line, name, value in _environment(dockerfile)
        if (entry := load_forbidden().setting(name, value)) and not entry.gate_only
    ]
    # An argument that is forbidden with some values only does not end the search in a command line.
    flags = {
        "--" + name.replace("_", "-")
        for name, entry in load_forbidden().arguments.items()
        if not (entry.gate_only or entry.keys or entry.dotted)
    }
    for each in instructions(dockerfile):
        if each.name in ("CMD", "ENTRYPOINT", "RUN"):
            broken += [f"line {each.line}: {flag}" for flag in sorted(flags) if flag in each.text]
    return broken


def secrets(dockerfile: str) -> list[str]:
    """What looks like a key or a password; a build argument stays in the image's history too."""
    found = [f"a value begins with {hit[0][:4]}" for hit in SECRET_VALUE.finditer(dockerfile)]
    return found + [
        f"line {line}: {name}"
        for line, name, _ in _environment(dockerfile)
        if SECRET_NAME.search(name.upper()) and not name.upper().endswith("TOKENS")
    ]


def missing_refusals(flags: Mapping[str, object], variables: Mapping[str, object]) -> list[str]:
    """What the toolkit forbids before a deployment, and the image's own entry point would let through."""
    listed = load_forbidden()
    missing = [name for name in listed.arguments if "--" + name.replace("_", "-") not in flags]
    return missing + [name for name in listed.variables if name not in variables]
