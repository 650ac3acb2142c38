#!/usr/bin/env python3
"""Check the base image during the image build; run as ``check_base.py BASE_IMAGE FLOOR [PACKAGE]``.

It fails the build if the base is not pinned by its digest, or if its package (default: vLLM) is older than
the floor. ``check_base.py --tag`` prints the beginning of the image's tag. Standard library only.
"""

import re
import sys
from importlib.metadata import PackageNotFoundError, version

PINNED = re.compile(r"[a-z0-9][\w.:/-]*@sha256:[0-9a-f]{64}")


def fault(base: str, installed: str, floor: str, package: str = "vLLM") -> str | None:
    """Return what is wrong with the base image; None if it is valid."""
    if not PINNED.fullmatch(base):
        return f"BASE_IMAGE: found {base!r}; allowed: REPOSITORY@sha256:DIGEST"
    if not installed:
        return f"the base image has no {package}"
    if numbers(installed) < numbers(floor):
        return f"the base image has {package} {installed}; allowed: {floor} and later"
    return None


def numbers(text: str) -> tuple[int, ...]:
    """Return the version's first three numbers: (0, 33, 0) for "0.33.0+cu130"."""
    parts = [int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3]]
    return (*parts, *[0] * (3 - len(parts)))


def tag(vllm: str, torch: str) -> str:
    """Return what AWS's tags begin with: "0.33.0-cu130"; "0.33.0" if torch has no CUDA."""
    return "-".join(filter(None, [vllm.partition("+")[0], torch.partition("+")[2]]))


def main(arguments: list[str]) -> int:
    """Run the command."""
    if arguments == ["--tag"]:
        print(tag(version("vllm"), version("torch")))
        return 0
    if len(arguments) not in (2, 3):
        print("usage: check_base.py BASE_IMAGE FLOOR [PACKAGE], or check_base.py --tag", file=sys.stderr)
        return 2
    package = arguments[2] if len(arguments) == 3 else "vLLM"
    try:
        installed = version(package)
    except PackageNotFoundError:
        installed = ""
    wrong = fault(arguments[0], installed, arguments[1], package)
    print(f"error: {wrong}" if wrong else f"{package} {installed} in {arguments[0]}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
