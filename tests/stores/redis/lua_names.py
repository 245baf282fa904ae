"""A small reader of Lua: which names a file takes from outside, which it assigns there, and how long its functions are.

It knows blocks and scopes, as far as the scripts use them. A local name counts from the word `local` on.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)|(?P<text>'(?:\\.|[^'\\])*')|(?P<number>\d[\w.]*)|(?P<name>[A-Za-z_]\w*)"""
    r"""|(?P<sign>\.\.\.|\.\.|[=~<>]=|.)""",
    re.DOTALL,
)
_WORDS = frozenset(
    re.findall(
        r"\w+",
        "and break do else elseif end false for function if in local nil not or repeat return then true until while",
    )
)


class Token(NamedTuple):
    kind: str
    text: str
    line: int


@dataclass
class Names:
    used: set[str] = field(default_factory=set)
    """Names that are no locals of the file."""
    assigned: set[str] = field(default_factory=set)
    """Those among them that the file gives a value, outside of all functions."""
    functions: dict[str, int] = field(default_factory=dict)
    """Lines of each function, by name and line."""


def names_of(text: str) -> Names:
    """Read a file of Lua."""
    return _Reader(text).read()


def _tokens(text: str) -> Iterator[Token]:
    for found in _TOKEN.finditer(text):
        if found.lastgroup != "space":
            kind = "word" if found[0] in _WORDS else str(found.lastgroup)
            yield Token(kind, found[0], text.count("\n", 0, found.start()) + 1)
    yield Token("end of file", "", 0)


class _Block(NamedTuple):
    names: set[str]
    function: Token | None = None
    """The name, or the word `function`, that a function begins with."""


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0
        self._blocks = [_Block(set())]
        self._braces = [0]
        """Open braces, by the functions that they stand in."""
        self._found = Names()

    def read(self) -> Names:
        while self._next.kind != "end of file":
            self._step(self._take())
        assert len(self._blocks) == 1, "a block is not closed"
        return self._found

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        self._at += 1
        return self._tokens[self._at - 1]

    def _step(self, token: Token) -> None:
        match token.text:
            case "function":
                self._function(token)
            case "local" if self._next.text == "function":
                self._blocks[-1].names.add(self._tokens[self._at + 1].text)
            case "local":
                self._blocks[-1].names.update(self._list())
            case "for":
                self._blocks.append(_Block(set(self._list())))
                while self._next.text != "do":
                    self._step(self._take())
                self._take()
            case "do" | "then" | "repeat":
                self._blocks.append(_Block(set()))
            case _:
                self._step_on(token)

    def _step_on(self, token: Token) -> None:
        match token.text:
            case "else":
                self._blocks[-1] = _Block(set())
            case "elseif":
                self._blocks.pop()
            case "end" | "until":
                self._close(token)
            case "{" | "}":
                self._braces[-1] += 1 if token.text == "{" else -1
            case _ if token.kind == "name":
                self._name(token)

    def _list(self) -> list[str]:
        names = [self._take().text]
        while self._next.text == ",":
            self._take()
            names.append(self._take().text)
        return names

    def _function(self, token: Token) -> None:
        if self._next.kind == "name":
            token = self._take()
            self._name(token, is_assigned=True)
        assert self._take().text == "("
        names = set() if self._next.text == ")" else set(self._list())
        self._blocks.append(_Block(names, token))
        self._braces.append(0)

    def _close(self, token: Token) -> None:
        block = self._blocks.pop()
        if block.function is not None:
            self._braces.pop()
            name = f"{block.function.text} in line {block.function.line}"
            self._found.functions[name] = token.line - block.function.line + 1

    def _name(self, token: Token, *, is_assigned: bool = False) -> None:
        before = self._tokens[self._at - 2].text if self._at > 1 else ""
        is_field = before in (".", ":") or (self._braces[-1] > 0 and before in ("{", ",") and self._next.text == "=")
        if is_field or any(token.text in block.names for block in self._blocks):
            return
        self._found.used.add(token.text)
        is_outside = not any(block.function for block in self._blocks)
        if is_outside and (is_assigned or self._begins_assignment()):
            self._found.assigned.add(token.text)

    def _begins_assignment(self) -> bool:
        """Whether the name just taken is one of those before a `=`."""
        at = self._at
        while self._tokens[at].text == ",":
            at += 2
        return self._tokens[at].text == "="
