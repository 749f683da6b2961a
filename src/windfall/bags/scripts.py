"""Values in the script of `sh -c`: passed as environment variables, so that a shell never reads them as code. Pure.

`sh -c 'echo {}'` becomes `sh -c 'echo "${WINDFALL_ARG_1}"'` with WINDFALL_ARG_1 = {} in the task's environment. Where a
quote is open, the variable is written so that it stays one word: `"a {}"` becomes `"a ${WINDFALL_ARG_1}"`. If the
script is misread, its text may come out wrong, but a value is still never run as code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from windfall.bags.template import BRACES
from windfall.errors import BadInput

SHELLS = frozenset(["sh", "bash", "dash", "ash", "ksh", "zsh"])
PREFIX = "WINDFALL_ARG_"
_TAKES_VALUE = frozenset(["-o", "+o", "-O", "+O", "--rcfile", "--init-file"])
_HERE = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([\w.-]+))")


class Guarded(NamedTuple):
    """A command whose scripts read their values from `env`. `runs_values`: a script is nothing but a value."""

    command: list[str]
    env: dict[str, str]
    runs_values: bool


def guard(command: Sequence[str], is_placeholder: Callable[[str], bool]) -> Guarded:
    """The command with the values of its scripts moved to variables. `is_placeholder("x")`: is `{x}` filled in?"""
    words, names, runs_values = list(command), dict[str, str](), False
    for at in script_positions(words):
        whole = BRACES.fullmatch(words[at].strip())
        if whole is not None and whole[2] is not None and is_placeholder(whole[2]):
            runs_values = True  # `sh -c {}`: the values are scripts, and are meant to be run
            continue
        words[at] = _Script(words[at], is_placeholder, names).guarded()
    return Guarded(words, {name: f"{{{inner}}}" for inner, name in names.items()}, runs_values)


def script_positions(words: Sequence[str]) -> list[int]:
    """Where scripts stand in a command: behind `sh -c`, also in `timeout 5 bash -euo pipefail -c SCRIPT`."""
    found = []
    for at, word in enumerate(words):
        if word.rpartition("/")[2] not in SHELLS:
            continue
        has_c, position = False, at + 1
        while position < len(words) and words[position][:1] in ("-", "+") and len(words[position]) > 1:
            option = words[position]
            if not option.startswith("--"):
                has_c = has_c or (option[0] == "-" and "c" in option)
                position += option[-1] in "oO"
            elif option in _TAKES_VALUE:
                position += 1
            position += 1
            if option == "--":
                break
        if has_c and position < len(words):
            found.append(position)
    return found


class _Script:
    """One pass over a script that knows at each placeholder which quotes are open."""

    def __init__(self, text: str, is_placeholder: Callable[[str], bool], names: dict[str, str]) -> None:
        self._text = text
        self._is_placeholder = is_placeholder
        self._names = names
        self._at = 0
        self._made: list[str] = []
        self._open = ["plain"]
        self._here: list[tuple[str, bool, bool]] = []  # delimiter, tabs are stripped, quoted

    def guarded(self) -> str:
        while self._at < len(self._text):
            if not self._placeholder():
                getattr(self, f"_in_{self._open[-1]}")()
        return "".join(self._made)

    def _take(self, count: int = 1) -> str:
        taken = self._text[self._at : self._at + count]
        self._made.append(taken)
        self._at += count
        return taken

    def _next(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _placeholder(self) -> bool:
        """Write a variable if a placeholder stands here; a `$` or a backslash before it is dropped."""
        skip = self._text[self._at] in "$\\" and self._open[-1] != "single"
        match = BRACES.match(self._text, self._at + skip)
        if match is None or match[2] is None or not self._is_placeholder(match[2]):
            return False
        name = self._names.setdefault(match[2], f"{PREFIX}{len(self._names) + 1}")
        variable = f"${{{{{name}}}}}"  # doubled braces: no placeholder
        around = {"single": "'\"{}\"'", "ansi": "'\"{}\"$'", "plain": '"{}"', "paren": '"{}"', "backtick": '"{}"'}
        self._made.append(around.get(self._open[-1], "{}").replace("{}", variable))
        self._at = match.end()
        return True

    def _in_single(self) -> None:
        if self._take() == "'":
            self._open.pop()

    def _in_ansi(self) -> None:
        if self._next("\\"):
            self._take(2)
        elif self._take() == "'":
            self._open.pop()

    def _in_double(self) -> None:
        if self._next('"'):
            self._open.pop()
            self._take()
        else:
            self._expansion()

    def _in_brace(self) -> None:
        if self._next("}"):
            self._open.pop()
            self._take()
        else:
            self._expansion()

    def _in_arithmetic(self) -> None:
        if self._next("))"):
            self._open.pop()
            self._take(2)
        elif self._next("("):
            self._open.append("group")
            self._take()
        else:
            self._expansion()

    def _in_group(self) -> None:
        if self._next(")"):
            self._open.pop()
            self._take()
        else:
            self._expansion()

    def _in_comment(self) -> None:
        if self._next("\n"):
            self._open.pop()
        else:
            self._take()

    def _in_backtick(self) -> None:
        if self._next("`"):
            self._open.pop()
            self._take()
        else:
            self._in_plain()

    def _in_paren(self) -> None:
        if self._next(")"):
            self._open.pop()
            self._take()
        else:
            self._in_plain()

    def _in_plain(self) -> None:
        before = self._text[self._at - 1] if self._at else " "
        if self._next("'"):
            self._open.append("single")
            self._take()
        elif self._next("$'"):
            self._open.append("ansi")
            self._take(2)
        elif self._next('"'):
            self._open.append("double")
            self._take()
        elif self._next("(") and self._open[-1] == "paren":
            self._open.append("paren")
            self._take()
        elif self._next("#") and before in " \t\n;&|(":
            self._open.append("comment")
        elif not self._next("<<<") and (here := _HERE.match(self._text, self._at)):
            quoted = here[2] or here[3] or ("\\" in here[0] and here[4])
            self._here.append((here[2] or here[3] or here[4], bool(here[1]), bool(quoted)))
            self._take(len(here[0]))
        elif self._next("<<<"):
            self._take(3)
        elif self._next("\n") and self._here:
            self._take()
            for document in self._here:
                self._document(*document)
            self._here = []
        else:
            self._expansion()

    def _expansion(self) -> None:
        for start, kind in (("$((", "arithmetic"), ("$(", "paren"), ("${", "brace"), ("`", "backtick")):
            if self._next(start):
                self._open.append(kind)
                self._take(len(start))
                return
        # Behind a backslash comes one character, unless a placeholder begins there.
        self._take(2 if self._next("\\") and not BRACES.match(self._text, self._at + 1) else 1)

    def _document(self, delimiter: str, tabs: bool, quoted: bool) -> None:
        """The lines of a here-document, in which variables stand for themselves, and quotes too."""
        self._open.append("document")
        while self._at < len(self._text):
            end = self._text.find("\n", self._at)
            line = self._text[self._at : end if end >= 0 else len(self._text)]
            if (line.lstrip("\t") if tabs else line) == delimiter:
                break
            stop = self._at + len(line) + (end >= 0)
            while self._at < stop:
                at = self._at
                if not self._placeholder():
                    self._take()
                elif quoted:
                    raise BadInput(
                        f"{self._text[at : self._at]} stands in a here-document whose end is quoted ({delimiter})",
                        hint="leave the quotes out, or use --stdin-text.  Nothing was started.",
                    )
        self._open.pop()
