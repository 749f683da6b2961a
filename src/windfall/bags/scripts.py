"""Values in the script of `sh -c`: passed as environment variables, so that a shell never reads them as code. Pure.

`sh -c 'echo {}'` becomes `sh -c 'echo "${WINDFALL_ARG_1}"'` with WINDFALL_ARG_1 = {} in the task's environment. Where a
quote is open, the variable is written so that it stays one word: `"a {}"` becomes `"a ${WINDFALL_ARG_1}"`. If the
script is misread, its text may come out wrong, but this shell still never runs a value as code.

What hands text on to be run (`eval`, a shell in the shell, `ssh`, arithmetic of bash) and programs in other languages
(`python3 -c 'print({})'`) are beyond this; a warning names them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import NamedTuple

from windfall.bags.template import BRACES
from windfall.errors import BadInput

SHELLS = frozenset(["sh", "bash", "dash", "ash", "ksh", "zsh"])
PREFIX = "WINDFALL_ARG_"
_TAKES_VALUE = frozenset(["-o", "+o", "-O", "+O", "--rcfile", "--init-file"])
_HANDS_ON = re.compile(
    r"(?:^|[\s;&|(`])(eval|ssh|(?:su|runuser)\s[^;&|]*-c|(?:\S*/)?(?:sh|bash|dash|ash|ksh|zsh)\s+-\w*c)(?=\s)"
)
_OPTIONS = {"python": "-c", "perl": "-e", "ruby": "-e", "node": "-e", "Rscript": "-e", "julia": "-e", "php": "-r"}
_LANGUAGES = re.compile(rf"({'|'.join(_OPTIONS)})[\d.]*")
_FILTERS = re.compile(r"[gmn]?awk|g?sed")
"""Programs that take a program of their own as the first word that is no option."""
_FILTER_VALUES = frozenset(["-F", "-v", "-e", "-l", "--expression"])
_FILTER_FILES = frozenset(["-f", "--file", "--from-file"])
_RUNS_TEXT = re.compile(
    rf"""(?:^|[\s;&|(`])((?:\S*/)?(?:[gmn]?awk|g?sed|watch|(?:{"|".join(_OPTIONS)})[\d.]*))"""
    r"""(?:\s+-\S+(?:\s+[^\s'"-][^\s'"]*)?)*\s+['"][^'"]*\Z"""
)
"""Such a program, a program in another language or a shell in the script, with its text in a quote still open."""
_SAFER = "safer is a value that the program reads as data"
_HERE = re.compile(r"<<(-?)[ \t]*(?:'([^'\n]+)'|\"([^\"\n]+)\"|\\?([\w.-]+))")


class Guarded(NamedTuple):
    """A command whose scripts read their values from `env`. `warning`: how values can be run as code all the same."""

    command: list[str]
    env: dict[str, str]
    warning: str


def guard(command: Sequence[str], is_placeholder: Callable[[str], bool]) -> Guarded:
    """The command with the values of its scripts moved to variables. `is_placeholder("x")`: is `{x}` filled in?"""
    words, names, warning = list(command), dict[str, str](), ""
    scripts = script_positions(words)
    for at in scripts:
        whole = BRACES.fullmatch(words[at].strip())
        if whole is not None and whole[2] is not None and is_placeholder(whole[2]):
            # `sh -c {}`: the values are scripts, and are meant to be run
            warning = "each value is run as a shell script, because the script is nothing but the value"
            continue
        script = _Script(words[at], is_placeholder, names)
        words[at] = script.guarded()
        warning = warning or script.warning
    if not scripts:
        warning = _in_other_languages(words, is_placeholder)
    return Guarded(words, {name: f"{{{inner}}}" for inner, name in names.items()}, warning)


def _in_other_languages(words: Sequence[str], is_placeholder: Callable[[str], bool]) -> str:
    """A warning if a value becomes part of a program in another language, or of a command for `ssh`."""
    for at, word in enumerate(words[:-1]):
        name = word.rpartition("/")[2]
        language = _LANGUAGES.fullmatch(name)
        if name == "ssh":
            program, shown = " ".join(words[at + 1 :]), "ssh"
        elif language is not None and (option := _program_option(words, at, _OPTIONS[language[1]])):
            program, shown = words[words.index(option, at) + 1], f"{word} {option}"
        elif _FILTERS.fullmatch(name):
            program, shown = _program_of_filter(words[at + 1 :]), word
        else:
            continue
        if any(match[2] is not None and is_placeholder(match[2]) for match in BRACES.finditer(program)):
            return f"a value becomes part of what {shown} runs as code; {_SAFER}"
    return ""


def _program_of_filter(words: Sequence[str]) -> str:
    """The program in the arguments of awk or sed: behind -e, else the first word that is no option. Empty: a file."""
    found, takes_value = [], ""
    for word in words:
        if takes_value:
            if takes_value in ("-e", "--expression"):
                found.append(word)
            takes_value = ""
        elif word in _FILTER_FILES:
            return " ".join(found)
        elif word in _FILTER_VALUES:
            takes_value = word
        elif not word.startswith("-"):
            return " ".join(found) or word
    return " ".join(found)


def _program_option(words: Sequence[str], at: int, option: str) -> str:
    """The option behind which the program stands: as in `perl -e`, `perl -lne`, `node --eval`. Empty: there is none."""
    letter = option[1]
    short = re.compile(rf"-\w*(?:{letter}|{letter.upper()})")
    long = ("--eval", "--print", "--command")
    return next((word for word in _options_behind(words, at) if short.fullmatch(word) or word in long), "")


def _options_behind(words: Sequence[str], at: int) -> list[str]:
    return list(takewhile(lambda word: word.startswith("-"), words[at + 1 : -1]))


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
        self.warning = ""

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
        self._warn()
        name = self._names.setdefault(match[2], f"{PREFIX}{len(self._names) + 1}")
        variable = f"${{{{{name}}}}}"  # doubled braces: no placeholder
        around = {"single": "'\"{}\"'", "ansi": "'\"{}\"$'", "plain": '"{}"', "paren": '"{}"', "backtick": '"{}"'}
        self._made.append(around.get(self._open[-1], "{}").replace("{}", variable))
        self._at = match.end()
        return True

    def _warn(self) -> None:
        """Note what would run the value that stands here."""
        if handed := _HANDS_ON.search(self._text[: self._at]):
            self.warning = (
                f"the script hands a value to {handed[1]}, which runs it as code; safer: sh -c SCRIPT sh {{}}"
            )
        elif handed := _RUNS_TEXT.search(self._text[: self._at]):
            self.warning = f"a value becomes part of what {handed[1]} runs as code; {_SAFER}"
        elif "arithmetic" in self._open:
            self.warning = "a value in $(( )) must be a number: bash runs what stands in brackets there"

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
