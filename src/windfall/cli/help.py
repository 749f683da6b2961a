"""Help in sections: commands by what they are for, options of a long command by what they concern. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

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
