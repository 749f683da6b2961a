"""The reference of policies says what the code knows: every attribute, function, policy and default."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from windfall.core.matching.policy import POLICIES
from windfall.policy import check_policies
from windfall.policy.names import ATTRIBUTES, FUNCTIONS, REFUSED, REPLICA_ATTRIBUTES

DOCS = Path(__file__).parents[3] / "docs"
REFERENCE = (DOCS / "reference" / "policies.md").read_text(encoding="utf-8")
ROWS = {line for line in REFERENCE.splitlines() if line.startswith("| `")}


@pytest.mark.parametrize("attribute", [*ATTRIBUTES, *REPLICA_ATTRIBUTES], ids=lambda a: f"{a.ad}.{a.name}")
def test_every_attribute_stands_in_the_reference_with_type_meaning_and_example(attribute):
    example = attribute.example.replace("||", "\\|\\|")
    assert f"| `{attribute.ad}.{attribute.name}` | {attribute.type} | {attribute.meaning} | `{example}` |" in ROWS


def test_every_policy_function_and_refusal_stands_in_the_reference():
    assert [name for name in POLICIES if not any(row.startswith(f"| `{name}` |") for row in ROWS)] == []
    assert [name for name in FUNCTIONS if f"`{name}`" not in REFERENCE] == []
    assert [name for name, hint in REFUSED.items() if f"| `{name}()` | {hint} |" not in ROWS] == []


@pytest.mark.parametrize("page", ["reference/policies.md", "explanation/policies.md"])
def test_the_policies_printed_in_the_documentation_have_no_errors_and_no_warnings(page):
    blocks = (DOCS / page).read_text(encoding="utf-8").split("```toml\n")[1:]
    assert blocks
    for block in blocks:
        policies = tomllib.loads(block.split("```")[0])["job"]["policies"]
        assert check_policies(policies) == []
