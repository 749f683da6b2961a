"""Help in sections, with examples at its end. Pure."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence

import click

from windfall.cli.examples import EXAMPLES

REST = "Other options"
"""The section of options that no section names."""


class SectionedCommand(click.Command):
    """A command whose help lists its options in sections: section -> names of parameters or options, in `sections`."""

    sections: Mapping[str, Sequence[str]] = {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows: dict[str, list[tuple[str, str]]] = {section: [] for section in (*self.sections, REST)}
        section_of = {name: section for section, names in self.sections.items() for name in names}
        for option in self.get_params(ctx):
            row = option.get_help_record(ctx) if isinstance(option, click.Option) else None
            if row is not None:
                rows[section_of.get(option.opts[-1].lstrip("-"), section_of.get(option.name or "", REST))].append(row)
        for section, found in rows.items():
            if found:
                with formatter.section(section):
                    formatter.write_dl(found)


_BLOCK = re.compile(r"\x08\n *Examples?:\n(?P<lines>(?:[ ]+\S.*(?:\n|$))+)")


def teach(command: click.Command, words: tuple[str, ...]) -> None:
    """Let the help of a command, and of those in its group, end with its examples: those of its docstring, then those
    of the table. `words` name it: ("host", "list")."""
    text = inspect.cleandoc(command.help or "")
    lines: list[str] = []
    while block := _BLOCK.search(text):
        lines += [line.strip() for line in block["lines"].splitlines()]
        text = (text[: block.start()].rstrip() + "\n\n" + text[block.end() :].lstrip()).strip()
    lines += [line for line in EXAMPLES.get(" ".join(words), ()) if line not in lines]
    if lines:
        command.help = text
        command.epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
    for name, inner in getattr(command, "commands", {}).items():
        teach(inner, (*words, name))
