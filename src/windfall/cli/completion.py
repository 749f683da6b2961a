"""`windfall completion`: commands and options completed by the shell. Touches the terminal; with --install, the file
that the shell reads."""

from __future__ import annotations

import os
from pathlib import Path

import click

from windfall.cli.options import json_option
from windfall.cli.show.output import note, print_json
from windfall.errors import BadInput

VARIABLE = "_WINDFALL_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
COMPINIT = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit -i }\n"
"""zsh completes nothing before this, and a fresh ~/.zshrc does not have it."""
EVALUATED = 'eval "$(windfall completion {shell})"'


@click.command()
@click.argument("shell", required=False, type=click.Choice(SHELLS))
@click.option("--install", is_flag=True, help="Write it to where new terminals of the shell read it.")
@json_option
def completion(shell: str | None, install: bool, as_json: bool) -> None:
    """Print the script with which a shell completes commands and options; with --install, let it do so from now on.

    Without an argument the shell is the one that $SHELL names.

    \b
    Examples:
      windfall completion --install
      windfall completion zsh
    """
    name = shell or _own_shell()
    if not install:
        script = _script(name)
        if as_json:
            print_json({"shell": name, "script": script})
        else:
            click.echo(script, nl=False)
        return
    file = _file(name)
    changed = _install(name, file)
    if as_json:
        print_json({"shell": name, "file": str(file), "changed": changed})
    else:
        click.echo(f"{'wrote' if changed else 'nothing to do: it stands in'} {file}")
        note("open a new terminal and type: windfall st<Tab>")


def _own_shell() -> str:
    name = Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        said = f"$SHELL is '{name}'" if name else "$SHELL is not set"
        raise BadInput(f"for which shell? {said}", hint="windfall completion bash (or zsh, fish)")
    return name


def _script(shell: str) -> str:
    from click.shell_completion import get_completion_class

    from windfall.cli import cli

    made = get_completion_class(shell)
    assert made is not None
    script = made(cli, {}, "windfall", VARIABLE).source()
    return COMPINIT + script if shell == "zsh" else script


def _file(shell: str) -> Path:
    """What the shell reads at its start; of fish, when `windfall` is completed first."""
    home = Path.home()
    if shell == "fish":
        settings = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        return settings / "fish" / "completions" / "windfall.fish"
    return Path(os.environ.get("ZDOTDIR") or home) / ".zshrc" if shell == "zsh" else home / ".bashrc"


def _install(shell: str, file: Path) -> bool:
    """Whether the file had to be changed. What stands in it stays."""
    line = "windfall completion fish | source" if shell == "fish" else EVALUATED.format(shell=shell)
    try:
        there = file.read_text() if file.exists() else ""
        if line in there.splitlines():
            return False
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as end:
            end.write(f"{'' if not there or there.endswith(chr(10)) else chr(10)}{line}\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{file} cannot be changed: {error}", hint=f"add this line to it yourself: {line}") from None
    return True
