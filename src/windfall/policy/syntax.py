"""Reads the text of a ClassAd expression into a tree with positions. Pure; it never evaluates anything.

classad2 parses and evaluates every policy itself, but it says neither where a text is wrong nor what an expression
refers to. This reader does both: columns for errors, references for `names`, clauses for `explain`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from msgspec import Struct

# Loosest first. `is` and `isnt` are the words for =?= and =!=.
BINARY_LEVELS: tuple[tuple[str, ...], ...] = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!=", "=?=", "=!=", "is", "isnt"),
    ("<", "<=", ">", ">="),
    ("<<", ">>", ">>>"),
    ("+", "-"),
    ("*", "/", "%"),
)
UNARY = ("-", "+", "!", "~")
WORDS = ("and", "or", "not")  # of other languages
LITERALS = ("true", "false", "undefined", "error")

TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/)
      | (?P<number>\d+\.\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?|\d+(?:[eE][+-]?\d+)?)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*|'(?:[^'\\]|\\.)*')
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<op>=\?=|=!=|>>>|\|\||&&|==|!=|<=|>=|<<|>>|\?:|[-+*/%<>!~&|^?:.,;=()\[\]{}])
    """,
    # The library knows no other digits and spaces than those of ASCII.
    re.VERBOSE | re.DOTALL | re.ASCII,
)
# The ClassAd library recurses on the C stack when it evaluates; a policy must not be able to exhaust it.
MAX_CHARACTERS = 20_000
MAX_DEPTH = 500
TOO_LARGE = "a long list of names is shorter as member(Host.Name, {...})"
# Text copied from a paper or a word processor has these; the same length keeps the columns true.
STRAIGHT = str.maketrans({"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "−": "-", "\u00a0": " "})


class SyntaxFault(Exception):
    """The text is no expression: what is wrong, at which offset, and what to write instead."""

    def __init__(self, message: str, offset: int, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.offset, self.hint = message, offset, hint


class Token(Struct, frozen=True):
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Node(Struct, frozen=True):
    """A piece of an expression: `kind` is literal, ref, call, unary, binary, ternary, list, record, subscript, select.

    `op` is the operator, the function or the selected attribute; `path` the names of a reference, or of a record's
    entries in the order of `args`. `start` and `end` leave enclosing parentheses out.
    """

    kind: str
    start: int
    end: int
    op: str = ""
    path: tuple[str, ...] = ()
    args: tuple[Node, ...] = ()


def straighten(text: str) -> str:
    """Typographic quotes and minus signs made plain; positions stay the same."""
    return text.translate(STRAIGHT)


def tokens(text: str) -> list[Token]:
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            if text[at] in "\"'":
                raise SyntaxFault(f"the quote {text[at]} is never closed", at)
            raise SyntaxFault(f"'{text[at]}' means nothing here", at)
        if match.lastgroup != "space":
            found.append(Token(str(match.lastgroup), match.group(), at))
        at = match.end()
    found.append(Token("end", "", len(text)))
    return found


@lru_cache(maxsize=4096)
def parse(text: str) -> Node:
    """The tree of one whole expression."""
    if len(text) > MAX_CHARACTERS:
        raise SyntaxFault(f"{len(text):,} characters are too many for one policy", MAX_CHARACTERS, TOO_LARGE)
    reader = _Reader(straighten(text))
    try:
        node = reader.expression()
    except RecursionError:
        raise SyntaxFault("too many parentheses inside each other", reader.next.start, TOO_LARGE) from None
    reader.expect_end()
    if _depth(node) > MAX_DEPTH:
        raise SyntaxFault(f"more than {MAX_DEPTH} operators in one chain", 0, TOO_LARGE)
    return node


def walk(node: Node) -> Iterator[Node]:
    """The node and everything below it, in the order of the text."""
    waiting = [node]
    while waiting:
        here = waiting.pop()
        yield here
        waiting.extend(reversed(here.args))


def flattened(node: Node, op: str) -> list[Node]:
    """The operands of a chain of one operator: `a && (b && c)` gives a, b, c; anything else itself."""
    found: list[Node] = []
    waiting = [node]
    while waiting:
        here = waiting.pop()
        if here.kind == "binary" and here.op == op:
            waiting.extend(reversed(here.args))
        else:
            found.append(here)
    return found


def _depth(node: Node) -> int:
    deepest = 0
    waiting = [(node, 1)]
    while waiting:
        here, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting.extend((child, depth + 1) for child in here.args)
    return deepest


def position(text: str, offset: int) -> str:
    """'column 7', or 'line 2, column 7' where the text has several lines. Counted from one."""
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    return f"line {line}, column {column}" if "\n" in text else f"column {column}"


class _Reader:
    """Recursive descent over the tokens; every method leaves `self.at` behind what it read."""

    def __init__(self, text: str) -> None:
        self.tokens = tokens(text)
        self.at = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    @property
    def last_end(self) -> int:
        return self.tokens[self.at - 1].end

    def take(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def is_op(self, *ops: str) -> bool:
        """Is the next token one of these operators? Words are operators too, in any case."""
        token = self.next
        return token.text in ops if token.kind == "op" else token.kind == "name" and token.text.lower() in ops

    def expect(self, op: str, purpose: str) -> Token:
        if not self.is_op(op):
            raise SyntaxFault(f"'{op}' is missing {purpose}", self.next.start)
        return self.take()

    def expect_end(self) -> None:
        token = self.next
        if token.kind == "end":
            return
        hint = ""
        before = self.tokens[self.at - 1]
        if token.text == "=":
            hint = "equality is written =="
        elif before.kind == "number" and token.kind == "name" and token.text.lower() not in WORDS:
            hint = "numbers have no units; Host.Memory counts megabytes and times are seconds"
        elif token.text.lower() in WORDS:
            hint = "ClassAds write && for and, || for or, ! for not"
        raise SyntaxFault(f"an operator is missing before '{token.text}'", token.start, hint)

    def expression(self) -> Node:
        opened = self.next.start
        node = self.binary(0)
        if self.is_op("?:"):
            self.take()
            other = self.expression()
            return Node("ternary", opened, self.last_end, op="?:", args=(node, other))
        if self.is_op("?"):
            self.take()
            yes = self.expression()
            self.expect(":", "in 'condition ? one : other'")
            no = self.expression()
            return Node("ternary", opened, self.last_end, op="?", args=(node, yes, no))
        return node

    def binary(self, level: int) -> Node:
        if level == len(BINARY_LEVELS):
            return self.unary()
        opened = self.next.start
        node = self.binary(level + 1)
        while self.is_op(*BINARY_LEVELS[level]):
            op = self.take().text.lower()
            right = self.binary(level + 1)
            node = Node("binary", opened, self.last_end, op=op, args=(node, right))
        return node

    def unary(self) -> Node:
        if self.next.kind == "op" and self.next.text in UNARY:
            token = self.take()
            operand = self.unary()
            return Node("unary", token.start, self.last_end, op=token.text, args=(operand,))
        return self.postfix()

    def postfix(self) -> Node:
        start = self.next.start
        node = self.primary()
        while self.is_op(".", "["):
            if self.take().text == "[":
                index = self.expression()
                self.expect("]", "after the index")
                node = Node("subscript", start, self.last_end, args=(node, index))
                continue
            name = self.next
            if name.kind != "name":
                raise SyntaxFault("a name is missing after '.'", name.start)
            self.take()
            if node.kind == "ref":
                node = Node("ref", start, name.end, path=(*node.path, _unquoted(name.text)))
            else:
                node = Node("select", start, name.end, op=_unquoted(name.text), args=(node,))
        return node

    def primary(self) -> Node:
        token = self.next
        if token.kind in ("number", "string"):
            self.take()
            return _literal(token)
        if token.kind == "name":
            return self.name()
        if self.is_op("("):
            self.take()
            node = self.expression()
            self.expect(")", f"to close the one at column {token.start + 1}")
            return node
        if self.is_op("{"):
            self.take()
            args = self.items("}")
            return Node("list", token.start, self.last_end, args=args)
        if self.is_op("["):
            return self.record()
        raise SyntaxFault(*self.missing_value(token))

    def name(self) -> Node:
        token = self.take()
        if token.text.lower() in LITERALS:
            return Node("literal", token.start, token.end)
        if self.is_op("("):
            self.take()
            args = self.items(")")
            return Node("call", token.start, self.last_end, op=token.text, args=args)
        return Node("ref", token.start, token.end, path=(_unquoted(token.text),))

    def items(self, closing: str) -> tuple[Node, ...]:
        found: list[Node] = []
        while not self.is_op(closing):
            if found:
                self.expect(",", f"or '{closing}'")
            found.append(self.expression())
        self.take()
        return tuple(found)

    def record(self) -> Node:
        start = self.take().start
        names: list[str] = []
        values: list[Node] = []
        while not self.is_op("]"):
            if self.next.kind != "name":
                raise SyntaxFault("an attribute name is missing", self.next.start)
            names.append(_unquoted(self.take().text))
            self.expect("=", f"after '{names[-1]}'")
            values.append(self.expression())
            if not self.is_op("]"):
                self.expect(";", f"after the value of '{names[-1]}'")
        self.take()
        return Node("record", start, self.last_end, path=tuple(names), args=tuple(values))

    def missing_value(self, token: Token) -> tuple[str, int, str]:
        before = self.tokens[self.at - 1] if self.at else None
        where = f" after '{before.text}'" if before else ""
        if token.text == "/" and before is not None and before.text in (",", "("):
            return "a pattern between slashes is no value", token.start, 'write regexp("pattern", Host.Name)'
        if token.text == ".":
            return "a name may not begin with '.'", token.start, "write Host.Memory, BOT.Tail, Job.NumberOfReplicas"
        found = f"found '{token.text}'" if token.text else "the text ends"
        return f"a value is missing{where}: {found}", token.start, ""


def _literal(token: Token) -> Node:
    if token.kind == "number" and re.search(r"\.(?!\d)", token.text):
        # The library refuses these.
        raise SyntaxFault(f"'{token.text}' has no digit behind its point", token.start, "write it with one, as in 5.0")
    if token.kind == "number" and re.match(r"0\d", token.text):
        raise SyntaxFault(f"'{token.text}' begins with a zero", token.start, "ClassAds know decimal numbers only")
    return Node("literal", token.start, token.end)


def _unquoted(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name[1:-1]) if name.startswith("'") else name
