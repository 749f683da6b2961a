"""docs/reference/scenario.md, printed from the tables that the reading of scenarios uses. Touches nothing.

`python -m windfall.sim.inputs.reference > docs/reference/scenario.md` after a change of the tables.
"""

from __future__ import annotations

from typing import Any

from windfall.sim.inputs import schema
from windfall.sim.inputs.laws import LAWS

HEAD = """# Scenario files

A scenario is a TOML file that describes a world and the work in it; `windfall simulate FILE` runs it. Ready ones are
named by `windfall simulate --list`. Every key can be changed for one run: `--set pool.slurm.hosts=50`,
`--set 'bag.run={law="exponential", mean="10m"}'`, `--set server.lease=30s`, `--set 'pool.*.errors=0'` for all pools.
Unknown keys, missing units and impossible laws are refused before anything runs.

This page is printed from the code (`python -m windfall.sim.inputs.reference`); a test keeps the two the same.
"""

INTRODUCTIONS = {
    "server": "`[server]`: what the operator of the server would set.",
    "pool": "`[[pool]]`: where hosts come from; as many as you like; without a cloud or a site at least one.",
    "cloud": "`[[cloud]]`: where machines are rented, by the planner of a bag.",
    "site": "`[[site]]`: hosts that somebody owns: owners' requests come first, workers run where there is room.",
    "bag": "`[[bag]]`: work; at least one.",
    "outage": "`[[outage]]`: the network fails for everybody at once.",
    "restart": "`[[restart]]`: the server goes down and comes back with its saved state.",
    "drain": "`[[drain]]`: hosts finish what they have and end.",
    "fleet": "`[[fleet]]`: rented machines that several bags share.",
}


def page() -> str:
    parts = [HEAD, "## Kinds of values\n", "| kind | written as |\n|---|---|"]
    parts += [f"| {kind} | {text} |" for kind, text in schema.KINDS.items()]
    parts += ["\n## Laws\n", "| law | parameters | meaning |\n|---|---|---|"]
    parts += [f"| `{name}` | {', '.join(shape.parameters) or '-'} | {shape.meaning} |" for name, shape in LAWS.items()]
    parts.append("| `seen` | values | a list of values that were seen; straight lines between them |")
    parts += ["\n## Top of the file\n", _table(schema.TOP)]
    for name, (fields, _) in schema.SECTIONS.items():
        parts += [f"\n## {INTRODUCTIONS[name]}\n", _table(fields)]
        if name == "cloud":
            parts += ["\n### `[[cloud.offer]]`: what a cloud rents; at least one.\n", _table(schema.OFFER)]
    return "\n".join(parts) + "\n"


def _table(fields: tuple[schema.Field, ...]) -> str:
    rows = ["| key | kind | default | meaning |", "|---|---|---|---|"]
    for field in fields:
        kind = " or ".join(f'`"{choice}"`' for choice in field.choices) or field.kind
        rows.append(f"| `{field.name}` | {kind} | {_default(field.default)} | {field.meaning} |")
    return "\n".join(rows)


def _default(value: Any) -> str:
    if isinstance(value, schema.Required):
        return "needed"
    if value in ("", {}, []):
        return "-"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


if __name__ == "__main__":
    print(page(), end="")
