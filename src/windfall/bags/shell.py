"""Command lines as in a tasks.txt: split by us where that is enough, else given to /bin/sh, as make does. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

SHELL = ("/bin/sh", "-c")

# What only a shell can do: pipes, lists, redirections, substitutions, patterns, comments, assignments before a command.
_SHELL_ONLY = re.compile(r"[|&;<>()$`*?\[\]#~!{}]")
_ASSIGNMENT = re.compile(r"[ \t]*\w+=")
_BUILTINS = frozenset([
    ".", ":", "alias", "bg", "break", "case", "cd", "command", "continue", "eval", "exec", "exit", "export", "fg",
    "for", "getopts", "hash", "if", "jobs", "local", "read", "readonly", "return", "set", "shift", "times", "trap",
    "type", "ulimit", "umask", "unalias", "unset", "until", "wait", "while",
])  # fmt: skip
_SHELL_WORD = re.compile(r"\|\|?|&&?|;|\d?>>?(?:&\d|[^=].*)?|<|.*[^\\];")
"""A word that only a shell understands: an operator, a redirection with its file, a word with a semicolon behind it."""
_QUOTES = re.compile(r"['\"\\]")
_WORD = re.compile(r"""(?:[^ \t'"\\]|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+""")
_BALANCED = re.compile(r"""(?:[^'"\\]++|\\.|'[^']*'|"(?:[^"\\]|\\.)*+")*+\Z""")
_QUOTED = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)""")
_ESCAPED = re.compile(r'\\(["\\])')


def needs_shell(line: str) -> bool:
    """Does the line use anything that only a shell knows?"""
    # Two patterns: as alternatives of one they would be tried at every character.
    if _SHELL_ONLY.search(line) or _ASSIGNMENT.match(line):
        return True
    return line.lstrip(" \t").partition(" ")[0].partition("\t")[0] in _BUILTINS


def has_shell_words(command: str) -> bool:
    """Is a command with parameters plainly meant for a shell, to which it is never given? Quoted words are data."""
    return any(_SHELL_WORD.fullmatch(word) for word in _WORD.findall(command))


def argv_of(line: str) -> list[str]:
    """The words to execute for a line of a tasks.txt."""
    return [*SHELL, line] if needs_shell(line) else split(line)


def split(line: str) -> list[str]:
    """The words of a line, with quotes and backslashes as in a shell (shlex, at a tenth of its time)."""
    if not _QUOTES.search(line):
        words = line.replace("\t", " ").split(" ")
        return [word for word in words if word] if "" in words else words
    return [_QUOTED.sub(_unquote, word) for word in _WORD.findall(line)]


def _unquote(match: re.Match[str]) -> str:
    single, double, escaped = match.groups()
    if single is not None:
        return single
    return escaped if double is None else _ESCAPED.sub(r"\1", double)


def is_balanced(line: str) -> bool:
    """Does every quote have its end, and every backslash something behind it?"""
    return _BALANCED.match(line) is not None


def first_unbalanced(lines: Sequence[str], text: str) -> int | None:
    """The index of the first line that cannot be split. What a shell runs, the shell judges.

    `text` holds these lines and perhaps others: one look at it spares most bags a look at every line.
    """
    if not ("'" in text or '"' in text or "\\" in text):
        return None
    for index, line in enumerate(lines):
        if _QUOTES.search(line) and not is_balanced(line) and not needs_shell(line):
            return index
    return None
