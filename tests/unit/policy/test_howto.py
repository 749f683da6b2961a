"""Every recipe of docs/howto/policies.md is a policy that is accepted for the option under which it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from windfall.cli.options import policy_texts
from windfall.policy import check_policies

TEXT = (Path(__file__).parents[3] / "docs/howto/policies.md").read_text()
OPTIONS = ("require", "rank", "concurrency", "attempt-deadline", "replicate", "grid")
SECTIONS = re.findall(r"^## [^\n]*`--([\w-]+)`\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
RECIPES = [
    (option, recipe.replace("\\|", "|"))
    for option, section in SECTIONS
    for recipe in re.findall(r"^\| [^|]+ \| `(.+)` \|$", section, re.MULTILINE)
    if not recipe.startswith("--")
]


def test_every_policy_has_its_section():
    assert [option for option, _ in SECTIONS] == list(OPTIONS)
    assert len(RECIPES) >= 12


@pytest.mark.parametrize(("option", "recipe"), RECIPES)
def test_a_recipe_is_accepted(option, recipe):
    said = {name.replace("-", "_"): None for name in OPTIONS} | {option.replace("-", "_"): recipe, "policies": ()}
    findings = check_policies(policy_texts(said), {"Host": ["site", "gpu", "owner"]})
    assert [finding.message for finding in findings] == []
