"""YAML in which each thing is said once."""

from __future__ import annotations

from typing import Any

import yaml


class UniqueKeys(yaml.SafeLoader):
    """YAML lets the last of two equal keys win in silence; a spec says each thing once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Read a mapping; raises ConstructorError at a key that is there already."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # the base class refuses it, and says where
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} is given twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)
