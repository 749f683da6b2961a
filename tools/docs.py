"""Checks the documentation: every relative link and every file that a page names exists, README leads to every page.

Reads the pages and touches nothing else. Examples are run by tests: tests/e2e/commands/test_docs.py, and the
test_docs.py of each room.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "windfall"
LINK = re.compile(r"\]\(([^)#]+)(#[^)]*)?\)")
HERE = re.compile(r"\]\(#([^)]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
CODE = re.compile(r"`([^`\n]+)`")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
PATH = re.compile(r"(?:src/windfall/|src/|tests/|tools/|examples/|docs/)?[a-z_]+(?:/[\w.*-]+)+/?")
EXAMPLE = re.compile(r"(?<![\w/.-])(?:examples|docs|tests|tools|src)/[\w./-]*\w")
MODULE = re.compile(r"[a-z_]+(?:\.[a-z_][a-z_0-9]*)*(?:\.[A-Z]\w*)?")
WRITTEN = ("build", "dist")
"""Folders of the project that commands write: what is in them is there or not."""


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]


def broken_links(page: Path) -> Iterator[str]:
    """Targets of links that lead nowhere: no such file, or no such heading in it."""
    text = page.read_text()
    for target, anchor in LINK.findall(text):
        if "://" in target:
            continue
        if not (page.parent / target).exists():
            yield target
        elif anchor and anchor[1:] not in anchors(page.parent / target):
            yield target + anchor
    for anchor in HERE.findall(text):
        if anchor not in anchors(page):
            yield f"#{anchor}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = HEADING.findall(FENCED.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def unreachable() -> list[Path]:
    """Pages below docs/ to which no chain of links leads from README. A link to a folder leads to all pages in it."""
    found, queue = set[Path](), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        if page in found:
            continue
        found.add(page)
        for target, _ in LINK.findall(page.read_text()):
            if "://" not in target:
                place = (page.parent / target).resolve()
                queue += place.glob("*.md") if place.is_dir() else [place] if place.suffix == ".md" else []
    return [page for page in sorted(ROOT.glob("docs/**/*.md")) if page not in found]


def missing_files(page: Path) -> Iterator[str]:
    """Paths and modules of this project that the page names and that do not exist.

    In running text these are words in backticks, such as `core/engine.py` or `windfall.core.engine`; a path counts if
    its first folder is one of the project or of the package. In blocks of code only paths that begin with examples,
    docs, tests, tools or src count: other files there may be the reader's own.
    """
    if page.name == "CHANGELOG.md":  # names what is gone, too
        return
    text = page.read_text()
    for words in CODE.findall(FENCED.sub("", text)):
        if PATH.fullmatch(words) and not _exists(words):
            yield words
        if MODULE.fullmatch(words) and _in_package(words) and not _is_module(words.removeprefix("windfall.")):
            yield words
    for block in FENCED.findall(text):
        for path in EXAMPLE.findall(block):
            if not (ROOT / path).exists():
                yield path


def _exists(path: str) -> bool:
    """Whether the path exists below the project or the package; true for paths that are not the project's."""
    first = path.split("/", 1)[0]
    if first in WRITTEN:
        return True
    homes = [home for home in (ROOT, PACKAGE, ROOT / "src") if (home / first).is_dir()]
    # `lab/hads/hads.md` is written by a command into the user's directory: only source files are looked for there.
    if ROOT not in homes and not path.endswith((".py", ".toml", "/")):
        return True
    return not homes or any(any(home.glob(path.rstrip("/"))) for home in homes)


def _in_package(name: str) -> bool:
    """Whether a dotted name begins with `windfall` or a package of it. `client` is also a variable of examples."""
    first, _, rest = name.partition(".")
    if rest in ("toml", "json", "md", "py", "pyz", "sh", "log"):
        return False
    return bool(rest) and (first == "windfall" or (first != "client" and (PACKAGE / first).is_dir()))


def _is_module(name: str) -> bool:
    """Whether a dotted name below `windfall` leads to a module or package, or to a name in one."""
    parts = name.split(".")
    for length in (len(parts), len(parts) - 1, len(parts) - 2):
        place = PACKAGE.joinpath(*parts[:length]) if length >= 0 else None
        if place is None:
            break
        source = place.with_suffix(".py") if place.with_suffix(".py").exists() else place / "__init__.py"
        if source.exists():
            rest = parts[length:]
            return not rest or re.search(rf"\b{rest[0]}\b", source.read_text()) is not None
    return False


def problems() -> list[str]:
    """`page: what is wrong`, one line each."""
    found = []
    for page in pages():
        name = page.relative_to(ROOT)
        found += [f"{name}: the link to {target} leads nowhere" for target in broken_links(page)]
        found += [f"{name}: {path} does not exist" for path in missing_files(page)]
    return found + [f"{page.relative_to(ROOT)}: no chain of links leads here from README.md" for page in unreachable()]


if __name__ == "__main__":
    found = problems()
    print("\n".join(found) or "every link leads somewhere, every page is reached, and every file that is named exists")
    sys.exit(bool(found))
