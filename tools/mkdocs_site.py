"""What mkdocs needs of Windfall: the first page, and pages of the reference that are made from the code.

mkdocs calls the functions named `on_...`. Reads the code and the pages; writes nothing itself.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)]*)?\)")


FIRST = ("first-bag", "first-workflow", "first-deadline", "cli", "commands", "python", "http-api", "requests")
"""Pages that come first in their part; the others follow by name."""
MADE = {
    "commands": "Every command", "python": "Python", "requests": "Every request", "attributes": "Policy attributes",
    "events": "Events", "settings": "Settings",
}  # fmt: skip


MERMAID = ROOT / "build" / "npm" / "package" / "dist" / "mermaid.min.js"
"""What draws diagrams, as `make docs` gets it from npm; the theme would load it from another host."""
DRAWN_BY = "assets/mermaid.min.js"


def on_config(config: Any) -> Any:
    config["nav"] = navigation()
    if MERMAID.exists():
        config["extra_javascript"].append(DRAWN_BY)
    return config


def navigation() -> list[Any]:
    """All pages, by folder."""
    parts: list[Any] = [{"Windfall": "index.md"}]
    titles = {
        "tutorial": "Tutorials", "howto": "How to", "explanation": "How it works", "reference": "Reference",
        "adr": "Decisions",
    }  # fmt: skip
    for folder, title in titles.items():
        names = {page.stem for page in (DOCS / folder).glob("*.md")} | (set(MADE) if folder == "reference" else set())
        ordered = sorted(names, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
        paths = [(name, f"{folder}/{name}.md") for name in ordered]
        pages = [{MADE[name]: path} if name in MADE and folder == "reference" else path for name, path in paths]
        parts.append({title: pages})
    loose = sorted(page.name for page in DOCS.glob("*.md"))
    return [*parts[:-1], {"How it is built": [*loose, parts[-1]]}]


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    pages = {
        "index.md": first_page(),
        "reference/commands.md": commands(),
        "reference/python.md": python(),
        "reference/requests.md": requests(),
        "reference/attributes.md": attributes(),
        "reference/events.md": events(),
        "reference/settings.md": settings(),
    }
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    if MERMAID.exists():
        files.append(File.generated(config, DRAWN_BY, abs_src_path=str(MERMAID)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links to files beside the documentation become their text: the site does not have them.

    Diagrams stay text where nothing is there to draw them.
    """
    if not MERMAID.exists():
        markdown = markdown.replace("```mermaid\n", "```text\n")
    folder = (DOCS / page.file.src_uri).parent

    def shown(found: re.Match[str]) -> str:
        text, target, anchor = found[1], found[2], found[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return found[0]
        place = (folder / target).resolve()
        inside = place.is_relative_to(DOCS) and (place.suffix or not place.is_dir())
        return f"[{text}]({target}{anchor})" if inside else text

    return LINK.sub(shown, markdown)


def first_page() -> str:
    """README, with its links as they are from within docs/."""
    text = (ROOT / "README.md").read_text()
    text = re.sub(r"""((?:\]\(|src="|srcset="|href="))docs/""", r"\1", text)
    return re.sub(r"\((?:CONTRIBUTING|CHANGELOG)\.md\)", "(architecture.md)", text)


def commands() -> str:
    from windfall.cli import cli

    parts = ["# Every command", "Made from the help texts; `windfall COMMAND --help` says the same."]
    parts += [f"## {name}\n\n```text\n{text}\n```" for name, text in helps(cli, "windfall")]
    return "\n\n".join(parts) + "\n"


def helps(command: click.Command, path: str, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    """The help of a command and of all below it, by its name."""
    context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent, terminal_width=100)
    yield path, command.get_help(context).rstrip()
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from helps(below, f"{path} {name}", context)


def python() -> str:
    from windfall import client

    parts = ["# Python", "`from windfall import Client, Task, progress`. How to use it: [Python](../howto/python.md)."]
    for name in sorted(client.__all__):
        parts += described(name, getattr(client, name))
    return "\n\n".join(parts) + "\n"


def described(name: str, thing: Any) -> list[str]:
    parts = [f"## {name}", f"```python\n{name}{signature(thing)}\n```" if callable(thing) else "", doc(thing)]
    if inspect.isclass(thing):
        for each, member in inspect.getmembers(thing):
            if each.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
                continue
            call = f"{name}.{each}" + (signature(member) if inspect.isfunction(member) else "")
            parts += [f"### {name}.{each}", f"```python\n{call}\n```", doc(member)]
    return [part for part in parts if part]


def signature(thing: Any) -> str:
    try:
        text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(inspect.signature(thing)))
        return text.replace("(self, ", "(").replace("(self)", "()")
    except (TypeError, ValueError):
        return "(...)"


def doc(thing: Any) -> str:
    text = inspect.getdoc(thing) or ""
    # Only what the project itself wrote, and none of what a class inherits from Python.
    return "" if text == inspect.getdoc(type(thing)) else f"```text\n{text}\n```" if "\n    " in text else text


def requests() -> str:
    from windfall.server.http import openapi

    told = openapi.made()
    parts = [
        "# Every request",
        "Made from the table of routes and from the structs that bodies are read into; a server shows the same at "
        "`/openapi.json`. What requests answer: [HTTP](http-api.md).",
    ]
    for path, methods in told["paths"].items():
        for method, each in methods.items():
            roles = ", ".join(each.get("x-roles", [])) or "none"
            parts.append(f"## {method.upper()} {path}\n\n{each['summary'].rstrip('.')}. Roles: {roles}.")
            query = [f"`{one['name']}`" for one in each["parameters"] if one["in"] == "query"]
            if query:
                parts.append("Query: " + ", ".join(query) + ".")
            body = each.get("requestBody", {}).get("content", {}).get("application/json")
            if body:
                shape = told["components"]["schemas"][body["schema"]["$ref"].rpartition("/")[2]]
                parts.append("Body: " + ", ".join(f"`{name}`" for name in shape["properties"]) + ".")
    return "\n\n".join(parts) + "\n"


def attributes() -> str:
    from windfall.policy.names import ATTRIBUTES

    rows = [
        f"| `{each.ad}.{each.name}` | {each.type} | {each.meaning} | `{each.example.replace('|', chr(92) + '|')}` |"
        for each in ATTRIBUTES
    ]
    head = "# Policy attributes\n\nWhat policies may name: [policies](policies.md).\n\n"
    return head + "| attribute | type | meaning | example |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def events() -> str:
    from windfall.core import events as module

    parts = ["# Events", "What the log holds, as `windfall events` shows it. `t` is Unix seconds."]
    for name, kind in sorted(vars(module).items()):
        if inspect.isclass(kind) and issubclass(kind, module.Event) and kind is not module.Event:
            own = kind.__doc__ if "__doc__" in vars(kind) else None
            meanings = field_docs(kind)
            fields = [
                f"- `{field}`" + (f": {meanings[field]}" if field in meanings else "")
                for field in kind.__struct_fields__
            ]
            parts.append(f"## {name}\n\n{inspect.cleandoc(own) if own else ''}\n\n" + "\n".join(fields))
    return "\n\n".join(parts) + "\n"


def settings() -> str:
    import msgspec

    from windfall.core.events import Settings

    rows, meanings = [], field_docs(Settings)
    for field in msgspec.structs.fields(Settings):
        if field.name == "bookkeeping":
            continue  # numbers that counting needs, the same for a log as long as it lives (ADR 13)
        made = field.default_factory() if field.default_factory is not msgspec.NODEFAULT else field.default
        default = "" if made is msgspec.NODEFAULT else repr(made)
        rows.append(f"| `{field.name}` | `{default}` | {meanings.get(field.name, '')} |")
    intro = (
        "# Settings\n\nWhat the engine is told when a server starts; they are recorded in the log (`ServerStarted`). "
        "Options of `windfall server` set some of them.\n\n"
    )
    return intro + "| setting | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def field_docs(kind: type) -> dict[str, str]:
    """The texts below the fields of a class, by field."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for field, below in pairwise(tree.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            text = getattr(below.value, "value", None)
            if isinstance(text, str):
                found[field.target.id] = " ".join(text.split())
    return found
