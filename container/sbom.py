#!/usr/bin/env python3
"""Writes down what an environment holds, as a CycloneDX 1.6 document on standard output.

``sbom.py`` tells of the Python packages beside this Python and, where there is dpkg, of the system's;
``sbom.py --tag sbom.json`` prints what an image's tag says of it: vLLM's version and CUDA's.
``sbom.py FILE.lock`` tells of the packages that a lock names, with their hashes, without installing anything.
The same input gives the same document: no clock, no chance. Standard library only.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

_NAMESPACE = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")  # RFC 9562: names that are URLs
_PINNED = re.compile(r"^([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")

Component = dict[str, Any]


def python_component(name: str, version: str, hashes: Iterable[str] = ()) -> Component:
    """Return a package of Python; ``hashes`` are SHA-256 of the files that may stand for it."""
    normal = re.sub(r"[-_.]+", "-", name).lower()
    purl = f"pkg:pypi/{normal}@{version.replace('+', '%2B')}"
    component: Component = {
        "type": "library",
        "bom-ref": purl,
        "name": normal,
        "version": version,
        "purl": purl,
    }
    found = sorted(set(hashes))
    if found:
        component["hashes"] = [{"alg": "SHA-256", "content": text} for text in found]
    return component


def installed() -> Iterator[Component]:
    """Yield what is installed beside this Python."""
    for distribution in distributions():
        name = distribution.metadata["Name"]
        if name:
            yield python_component(name, distribution.version)


def system() -> Iterator[Component]:
    """Yield the packages of a Debian or Ubuntu; none elsewhere."""
    if shutil.which("dpkg-query") is None:
        return
    shape = "${Package}\t${Version}\t${Architecture}\n"
    listed = subprocess.run(["dpkg-query", "-W", "-f", shape], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        name, version, architecture = line.split("\t")
        purl = f"pkg:deb/debian/{name}@{version.replace('+', '%2B')}?arch={architecture}"
        yield {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def locked(text: str) -> Iterator[Component]:
    """Yield the packages of a lock file, each with the hashes that stand after it."""
    logical = re.sub(r"\\\s*\n", " ", text)
    for line in logical.splitlines():
        found = _PINNED.match(line.strip())
        if found:
            yield python_component(found[1], found[2], _HASH.findall(line))


def document(name: str, components: Iterable[Component]) -> dict[str, Any]:
    """Return the CycloneDX document; its serial number follows from its content."""
    unique = {component["bom-ref"]: component for component in components}
    listed = [unique[key] for key in sorted(unique)]
    digest = hashlib.sha256(json.dumps(listed, sort_keys=True).encode()).hexdigest()
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, digest)}",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": name}},
        "components": listed,
    }


def tag(told: dict[str, Any]) -> str:
    """Return the beginning of an image's tag: "0.33.0-cu130"; "0.33.0" where torch names no CUDA."""
    versions = {component["name"]: component["version"] for component in told["components"]}
    cuda = str(versions.get("torch", "")).partition("+")[2]
    return "-".join(filter(None, [versions["vllm"].partition("+")[0], cuda]))


def main(arguments: list[str]) -> int:
    """Be a command."""
    if arguments[:1] == ["--tag"] and len(arguments) == 2:
        print(tag(json.loads(Path(arguments[1]).read_text(encoding="utf-8"))))
        return 0
    if len(arguments) > 1:
        print("usage: sbom.py [FILE.lock] > sbom.json, or sbom.py --tag sbom.json", file=sys.stderr)
        return 2
    if arguments:
        path = Path(arguments[0])
        told = document(path.name, locked(path.read_text(encoding="utf-8")))
    else:
        told = document("peagle-sm", [*installed(), *system()])
    print(json.dumps(told, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
