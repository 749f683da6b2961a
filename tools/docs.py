"""Checks the documentation: every relative link leads somewhere. Examples are run by the tests."""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\]\(([^)#]+)(#[^)]*)?\)")


def broken_links() -> list[str]:
    """`page: target` of every link that leads nowhere."""
    found = []
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target, _ in LINK.findall(page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                found.append(f"{page.relative_to(ROOT)}: {target}")
    return found


if __name__ == "__main__":
    problems = broken_links()
    print("\n".join(problems) or "every link leads somewhere")
    sys.exit(bool(problems))
