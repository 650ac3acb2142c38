"""Read from vLLM's sources which values its arguments take: choices, ranges, variables. Nothing is run.

Sources are texts by path in the wheel. The types of the arguments are the annotations of its config classes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

Sources = Mapping[str, str]
_PARSERS = {
    "tool_call_parser": ("vllm/tool_parsers/__init__.py", "_TOOL_PARSERS_TO_REGISTER"),
    "reasoning_parser": ("vllm/reasoning/__init__.py", "_REASONING_PARSERS_TO_REGISTER"),
}
_BACKENDS = ("vllm/v1/attention/backends/registry.py", "vllm/attention/backends/registry.py")
_QUANTIZATION = "vllm/model_executor/layers/quantization/__init__.py"
_OWNERS = (
    *("ModelConfig", "CacheConfig", "ParallelConfig", "SchedulerConfig", "LoRAConfig", "LoadConfig"),
    *("MultiModalConfig", "ObservabilityConfig"),
)
"""Classes with the types of arguments whose default is not a config's."""
_BOUNDS = ("gt", "ge", "lt", "le")
_READ = re.compile(r"(?:environ(?:\.get)?[\[(]|getenv\()\s*[\"'](VLLM_\w+)[\"']")


def is_read(name: str) -> bool:
    """Return whether a file of the wheel is one of the sources."""
    single = ("vllm/envs.py", *_BACKENDS, _QUANTIZATION, *(file for file, _ in _PARSERS.values()))
    # the formats of chat templates, which moved twice
    return (
        name in single
        or name.endswith("/chat_utils.py")
        or (name.startswith("vllm/config/") and name.endswith(".py"))
    )


class Types:
    """Annotations of the config classes, and the names of their types."""

    def __init__(self, sources: Sources) -> None:
        """Parse the sources."""
        self._aliases: dict[str, ast.expr] = {}
        self._fields: dict[str, dict[str, ast.AnnAssign]] = {}
        self._bases: dict[str, list[str]] = {}
        self._numbers: dict[str, set[str]] = {}
        for name, text in sources.items():
            if not name.endswith("envs.py"):
                self._collect(ast.parse(text))

    def _collect(self, tree: ast.Module) -> None:
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._aliases.setdefault(node.targets[0].id, node.value)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                self._aliases.setdefault(node.target.id, node.value)
            elif isinstance(node, ast.ClassDef):
                self._numbers[node.name] = {
                    str(item.value.value)
                    for item in node.body
                    if isinstance(item, ast.Assign)
                    and isinstance(item.value, ast.Constant)
                    and type(item.value.value) is int
                }
                self._bases[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
                self._fields[node.name] = {
                    item.target.id: item
                    for item in node.body
                    if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
                }

    def arguments(self) -> Iterator[tuple[str, ast.AnnAssign]]:
        """Yield each argument with the field that has its type."""
        for owner, fields in self._fields.items():
            if owner == "EngineArgs":
                for name, item in fields.items():
                    if field := self._config_field(item.value) or self._same_name(name):
                        yield name, field
            elif owner.endswith("FrontendArgs"):
                yield from fields.items()

    def objects(self) -> Iterator[tuple[str, dict[str, ast.AnnAssign]]]:
        """Yield each argument that takes a config class as JSON, with the fields of the class."""
        for name, item in self._fields.get("EngineArgs", {}).items():
            names = [each.id for each in ast.walk(item.annotation) if isinstance(each, ast.Name)]
            owners = [each for each in names if each.endswith("Config") and each in self._fields]
            others = {"dict", "str", "int", "float", "bool", "list", "Any"} & set(names)
            if len(owners) == 1 and not others:
                yield name, self._with_bases(owners[0])

    def _with_bases(self, owner: str) -> dict[str, ast.AnnAssign]:
        inherited: dict[str, ast.AnnAssign] = {}
        for base in self._bases.get(owner, []):
            inherited |= self._with_bases(base)
        return inherited | self._fields.get(owner, {})

    def _same_name(self, name: str) -> ast.AnnAssign | None:
        owners = (self._fields.get(owner, {}) for owner in _OWNERS)
        return next((fields[name] for fields in owners if name in fields), None)

    def _config_field(self, default: ast.expr | None) -> ast.AnnAssign | None:
        """Return the field of a default such as CacheConfig.block_size or get_field(CacheConfig, "…")."""
        match default:
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                return self._fields.get(owner, {}).get(name)
            case ast.Call(args=[ast.Name(id=owner), ast.Constant(value=str(name))]):
                return self._fields.get(owner, {}).get(name)
        return None

    def choices(self, annotation: ast.expr) -> set[str] | None:
        """Return the texts that a type allows; None if it allows others too."""
        match annotation:
            case ast.Name(id=name) if name in self._aliases:
                return self.choices(self._aliases[name])
            case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
                items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                return self._literals(items)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                if any(isinstance(part, ast.Name) and part.id == "str" for part in (left, right)):
                    return None
                known = [texts for part in (left, right) if (texts := self.choices(part)) is not None]
                return set().union(*known) if known else None
        return None

    def numbers(self, enumeration: str) -> set[str]:
        """Return the numbers of an enumeration."""
        return self._numbers.get(enumeration, set())

    def _literals(self, items: list[ast.expr]) -> set[str] | None:
        texts: set[str] = set()
        for item in items:
            if isinstance(item, ast.Constant):
                texts |= {str(item.value)} - {"None"}
            elif (nested := self.choices(item)) is not None:
                texts |= nested
            else:
                return None
        return texts


def choices_in(sources: Sources) -> dict[str, set[str]]:
    """Return the allowed texts of each argument that has choices."""
    types = Types(sources)
    choices = {
        name: texts
        for name, field in types.arguments()
        if (texts := types.choices(field.annotation)) is not None
    }
    for name, fields in types.objects():
        for field, item in fields.items():
            if (texts := types.choices(item.annotation)) is not None:
                choices[f"{name}.{field}"] = texts
    backends = {
        item.targets[0].id
        for file in _BACKENDS
        for node in ast.parse(sources.get(file, "")).body
        if isinstance(node, ast.ClassDef) and node.name == "AttentionBackendEnum"
        for item in node.body
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name)
    }
    if backends:
        choices["attention_backend"] = choices["attention_config.backend"] = backends | {"AUTO"}
    if levels := types.numbers("OptimizationLevel"):
        choices["optimization_level"] = levels
    if methods := types.choices(ast.Name("QuantizationMethods")):
        choices["quantization"] = methods
    choices.get("all2all_backend", set()).discard("passthrough")  # vLLM's own: its parser refuses it
    for name, (file, table) in _PARSERS.items():
        keys = [
            node.value.keys
            for node in ast.parse(sources[file]).body
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Dict)
            and ast.unparse(node.targets[0]) == table
        ]
        choices[name] = {str(key.value) for key in keys[0] if isinstance(key, ast.Constant)}
    return choices


def fields_in(sources: Sources) -> dict[str, set[str]]:
    """Return the fields of each argument that takes a config class as JSON."""
    return {
        name: {field for field in fields if not field.startswith("_")}
        for name, fields in Types(sources).objects()
    }


def ranges_in(sources: Sources) -> dict[str, dict[str, float]]:
    """Return the bounds of each argument whose field has some: gt, ge, lt, le."""
    ranges: dict[str, dict[str, float]] = {}
    for name, field in Types(sources).arguments():
        call = field.value
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Field":
            bounds = {
                str(each.arg): bound
                for each in call.keywords
                if each.arg in _BOUNDS and (bound := _number_of(each.value)) is not None
            }
            if bounds:
                ranges[name] = bounds
    return ranges


def _number_of(node: ast.expr) -> float | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, int | float) else None


def variables_in(sources: Sources) -> set[str]:
    """Return the environment variables that the engine reads."""
    names = {name for text in sources.values() for name in _READ.findall(text)}
    for node in ast.walk(ast.parse(sources["vllm/envs.py"])):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "environment_variables":
            keys = node.value.keys if isinstance(node.value, ast.Dict) else []
            names |= {str(key.value) for key in keys if isinstance(key, ast.Constant)}
    return {name for name in names if name.startswith("VLLM_")}
