"""The regular expression of a rule, matched in bounded time whatever it says.

Python's `re` goes back over a text and may take exponentially long: `(a+)+$` does on a line of thirty letters, and
nothing can interrupt it. A pattern with few ways through it is left to `re`. Any other is matched without going back:
all places in the pattern that a text may have reached are followed at the same time, so each character is looked at
once. That needs a regular language, without look-around and references to groups. With these, `re` does it if one
repeat at most is of any length; what is left is refused when it is declared. A limit of time would need a clock, and
would depend on the machine.
"""

import importlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias

from reprieve.core.text import MAX_TEXT_CHARS

MAX_FAST_WAYS: Final = 32
"""Ways to match a pattern at one place of a text that `re` may try where all places can be followed instead."""

MAX_WAYS: Final = MAX_TEXT_CHARS + 1
"""Ways that `re` may try where they cannot: one repeat of any length."""

MAX_NODES: Final = 500
"""Nodes of a pattern that is matched without going back; each is one character or one choice."""

MAX_CACHED_STEPS: Final = 10_000

# Both have had this shape since Python 3.11, and their predecessors `sre_parse` and `sre_compile` for much longer.
_parser: Any = importlib.import_module("re._parser")
_compiler: Any = importlib.import_module("re._compiler")

Item: TypeAlias = tuple[Any, Any]
"""An operation of a parsed pattern, and its arguments."""


class Pattern(Protocol):
    """What finds a pattern in a text."""

    def search(self, text: str, /) -> object:
        """Return something true if the pattern occurs in the text."""
        ...


@lru_cache(maxsize=1_024)
def pattern_of(text: str) -> Pattern:
    """Return what finds a regular expression, ignoring case; raises `re.error` for one that it cannot."""
    compiled = re.compile(text, re.IGNORECASE)
    parsed = _parser.parse(text, re.IGNORECASE)
    ways = _ways(parsed)
    if ways > MAX_FAST_WAYS:
        try:
            return _Automaton(parsed, compiled.flags)
        except re.error:
            if ways > MAX_WAYS:
                raise
    return compiled


def _ways(items: Iterable[Item]) -> float:
    """Return at most how many ways `re` may try to match at one place in a text."""
    ways = 1.0
    for operation, argument in items:
        match str(operation):
            case "BRANCH":
                ways *= sum(map(_ways, argument[1]))
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, inner = argument
                most = min(int(most), MAX_TEXT_CHARS)
                # Beyond this limit the exact number does not matter, and would not fit into a number.
                each = min(_ways(inner), 1e6)
                ways *= most - least + 1 if each == 1 else each ** min(most, 50)
            case "SUBPATTERN":
                ways *= _ways(argument[-1])
            case "ATOMIC_GROUP":
                ways *= _ways(argument)
            case "ASSERT" | "ASSERT_NOT":
                ways *= _ways(argument[1])
            case "GROUPREF_EXISTS":
                ways *= _ways(argument[1]) + _ways(argument[2] or ())
            case _:
                pass
        ways = min(ways, 1e18)
    return ways


class _Node:
    """One place in a pattern: what it needs to go on, and where it goes on."""

    __slots__ = ("is_character", "next", "test")

    def __init__(self, test: re.Pattern[str] | None = None, *, is_character: bool = False) -> None:
        self.test = test
        """Matches the character, or the place between two characters; None goes on in any case."""
        self.is_character = is_character
        self.next: list[_Node] = []


_Nodes: TypeAlias = frozenset[_Node]


class _Automaton:
    """Follows a pattern through a text without going back."""

    def __init__(self, parsed: Iterable[Item], flags: int) -> None:
        """Raise `re.error` for a pattern that is too large or not regular."""
        self._count = 0
        self._has_places = False
        self._end = _Node()
        start, end = self._sequence(parsed, flags)
        end.next.append(self._end)
        self._start: _Nodes = frozenset((start,))
        self._steps: dict[tuple[_Nodes, str, str], _Nodes | None] = {}

    def search(self, text: str) -> bool:
        """Whether the pattern occurs in a text."""
        nodes, before = self._start, ""
        for after in (*text, ""):
            key = nodes, before if self._has_places else "", after
            if key not in self._steps:
                if len(self._steps) >= MAX_CACHED_STEPS:
                    self._steps.clear()
                self._steps[key] = self._step(nodes, before, after)
            following = self._steps[key]
            if following is None:
                return True
            # A match may begin at any place.
            nodes, before = following, after
        return False

    def _step(self, nodes: _Nodes, before: str, after: str) -> _Nodes | None:
        """Return where the next character leads to, with the start; None where the pattern is complete."""
        reached, waiting, following = set(nodes), list(nodes), set(self._start)
        while waiting:
            node = waiting.pop()
            if node is self._end:
                return None
            if node.is_character:
                if after and node.test is not None and node.test.match(after):
                    following.update(node.next)
            elif node.test is None or node.test.match(before + after, len(before)):
                waiting += [one for one in node.next if one not in reached]
                reached.update(node.next)
        return frozenset(following)

    # building

    def _sequence(self, items: Iterable[Item], flags: int) -> tuple[_Node, _Node]:
        """Return the first and the last node of items that follow each other."""
        first = last = self._node()
        for item in items:
            begin, end = self._item(item, flags)
            last.next.append(begin)
            last = end
        return first, last

    def _item(self, item: Item, flags: int) -> tuple[_Node, _Node]:
        operation, argument = item
        match str(operation):
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                node = self._node(_leaf(item, flags), is_character=True)
                return node, node
            case "AT":
                self._has_places = True
                node = self._node(_leaf(item, flags))
                return node, node
            case "BRANCH":
                return self._branch(argument[1], flags)
            case "SUBPATTERN":
                _, added, removed, inner = argument
                return self._sequence(inner, (flags | added) & ~removed)
            case "MAX_REPEAT" | "MIN_REPEAT":
                return self._repeat(argument, flags)
            case name:
                message = f"{name.lower().replace('_', ' ')} cannot be combined with repeats that take so long"
                raise re.error(message)

    def _branch(self, alternatives: Iterable[Iterable[Item]], flags: int) -> tuple[_Node, _Node]:
        first, last = self._node(), self._node()
        for alternative in alternatives:
            begin, end = self._sequence(alternative, flags)
            first.next.append(begin)
            end.next.append(last)
        return first, last

    def _repeat(self, argument: tuple[int, Any, Iterable[Item]], flags: int) -> tuple[_Node, _Node]:
        least, most, inner = argument
        is_endless = most == _parser.MAXREPEAT
        first = here = self._node()
        last = self._node()
        for number in range(max(least, 1) if is_endless else most):
            if number >= least:
                here.next.append(last)
            begin, end = self._sequence(inner, flags)
            here.next.append(begin)
            if is_endless and number >= least - 1:
                end.next.append(begin)
            here = end
        here.next.append(last)
        return first, last

    def _node(self, test: re.Pattern[str] | None = None, *, is_character: bool = False) -> _Node:
        self._count += 1
        if self._count > MAX_NODES:
            message = f"it has more than {MAX_NODES} parts, with every repeat written out"
            raise re.error(message)
        return _Node(test, is_character=is_character)


def _leaf(item: Item, flags: int) -> re.Pattern[str]:
    """Compile one operation, so that it means what it means to `re`."""
    state = _parser.State()
    state.flags = flags
    compiled: re.Pattern[str] = _compiler.compile(_parser.SubPattern(state, [item]), flags)
    return compiled
