"""Page of the checks, from their registry."""

from __future__ import annotations

from peagle_sm.core.checks import ALL_CHECKS, SPEC_CHECKS, Check

_INTRO = """\
# Checks: what is checked before a deploy

`scripts/reference` writes this page from the registry of checks. To write a check of your own, see
[Add a preflight check](../explanation/follow.md#add-a-preflight-check).

`plan` runs the checks that need only the spec, without an account. `deploy` runs those and the preflight
before it creates anything. `peagle-sm doctor` runs all, also those of this machine, and changes nothing.

- **error**: the deploy would fail, or P-EAGLE would be off and nothing would say so. Nothing is created;
  exit code 3, or 5 without credentials.
- **warning**: it works, but costs or risks something. An advisory has an expiry date.
- **unknown**: the check got no answer in time, or a permission is missing; the report names it. The deploy
  goes on.
- **skipped**: left out with `--skip-check ID`. The report still says what the check looks for.

All look-ups run at the same time, in at most 30 seconds together. They only read. The
local SageMaker has no quotas, prices or registry, so fewer checks apply there.
"""


def checks_page() -> str:
    """The page: a table of all, and each in full."""
    parts = [
        _INTRO,
        f"## All {len(ALL_CHECKS)}\n",
        *_table(),
    ]
    parts += ["\n## Each in full\n", *(_full(each) for each in ALL_CHECKS)]
    return "\n".join(parts).rstrip() + "\n"


def _table() -> list[str]:
    rows = [
        f"| [{each.id}](#{each.id}) | {each.severity} | {_where(each)} | {each.what} |" for each in ALL_CHECKS
    ]
    return ["| check | at worst | looks at | what |", "|---|---|---|---|", *rows]


def _where(each: Check) -> str:
    return "spec" if each in SPEC_CHECKS else "this machine" if each.reads == "machine" else "account"


def _full(each: Check) -> str:
    source = f"[{each.source}]({each.url})" if each.url else each.source
    lines = [f"### {each.id}", "", each.what, "", f"- why: {each.why}", f"- fix: {each.remedy}"]
    return "\n".join([*lines, f"- source: {source}", ""])
