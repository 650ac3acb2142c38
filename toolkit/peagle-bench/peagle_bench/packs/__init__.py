"""Workload packs: prompts of one kind of traffic, what a pass means, a judge, and the fault to find.

`pack` defines what a pack is, `run` measures packs on arms, `judges` and `identity` hold what several packs
share. Each pack is a module with a `PACK`; `PACKS` names them, so that nothing is imported before it is
needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from peagle_sm.core.errors import SpecError

if TYPE_CHECKING:
    from peagle_bench.packs.pack import Pack

#: The packs in the order of the scorecard, and the module of each.
PACKS = {
    "rag": "rag",
    "long-context": "long_context",
    "agents": "agents",
    "guardrails": "guardrails",
    "structured-output": "structured",
    "adversarial": "adversarial",
    "languages": "languages",
}
ALL = "all"


def load_pack(name: str) -> Pack:
    """Return a pack by its name.

    Raises:
        SpecError: there is no such pack.
    """
    module = PACKS.get(name)
    if module is None:
        raise SpecError(
            f"there is no workload pack {name!r}; packs: {', '.join(PACKS)}",
            next_step="run `peagle-sm packs` to see what each shows and needs",
            details={"found": name, "allowed": list(PACKS)},
        )
    pack: Pack = import_module(f"peagle_bench.packs.{module}").PACK
    return pack


def chosen_packs(text: str) -> list[Pack]:
    """Return the packs of ``rag,agents`` or ``all``, each once, in the order of the scorecard.

    Raises:
        SpecError: no pack, an unknown one, or ``all`` beside others.
    """
    names = [word.strip() for word in text.split(",") if word.strip()]
    if ALL in names and names != [ALL]:
        raise SpecError(
            f"--packs: found {text!r}; allowed: {ALL} alone, or names of packs: {', '.join(PACKS)}",
            next_step=f"give --packs {ALL}, or the names",
        )
    chosen = set(PACKS) if names == [ALL] else {load_pack(name).name for name in names}
    if not chosen:
        raise SpecError(
            f"--packs: found {text!r}; allowed: {ALL}, or one or more of {', '.join(PACKS)}",
            next_step="give for example --packs rag,agents",
        )
    return [load_pack(name) for name in PACKS if name in chosen]
