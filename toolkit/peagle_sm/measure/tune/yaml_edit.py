"""Writes the K into a spec file as text: nothing else of the file changes, comments least of all. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from peagle_sm.core.spec.fields import edit_spec

_MARK = "# tuned: "
_KEY = "num_speculative_tokens"


def write_k(text: str, k: int, evidence: Sequence[str], origin: str = "spec") -> str:
    """Return the file's text with ``speculation.num_speculative_tokens: k`` and the evidence above it.

    The evidence of an earlier tuning (comment lines that begin with ``# tuned:``) is replaced.

    Raises:
        SpecError: the text is no spec, or the place of the K cannot be found in it.
    """
    untuned = "\n".join(line for line in text.split("\n") if not line.strip().startswith(_MARK))
    written = edit_spec(untuned, {f"speculation.{_KEY}": k}, origin)
    root = yaml.compose(written, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)  # it was read as a spec
    part, fields = _child(root, "speculation")
    assert isinstance(fields, yaml.MappingNode)  # the K was just written into it
    above = (part if fields.flow_style else _child(fields, _KEY)[0]).start_mark
    lines = written.split("\n")
    comments = [f"{' ' * above.column}{_MARK}{line}" for line in evidence]
    return "\n".join([*lines[: above.line], *comments, *lines[above.line :]])


def _child(node: yaml.MappingNode, key: str) -> tuple[yaml.Node, yaml.Node]:
    return next((name, value) for name, value in node.value if name.value == key)
