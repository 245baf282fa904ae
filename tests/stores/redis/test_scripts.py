"""Scripts say what they need from each other, and it is true."""

import re

import pytest

from reprieve.stores.redis.scripts import FOLDER, assemble, read_source, script, source
from tests.docs.page import code, table, text_of
from tests.stores.redis.lua_names import names_of

NAMES = sorted(file.stem for file in FOLDER.glob("*.lua"))
LIBRARIES = [name for name in NAMES if source(name).exports]
SCRIPTS = [name for name in NAMES if not source(name).exports]
BUILT_IN = {
    *("KEYS", "ARGV", "redis", "cmsgpack", "struct", "math", "string", "table"),
    *("ipairs", "pairs", "next", "pcall", "tonumber", "tostring", "unpack"),
}
MAX_FUNCTION_LINES = 50
MAX_FILE_LINES = 320
LAYOUT = [row["key"] for row in table(text_of("docs/reference/redis.md"), "key", "type")]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_uses_what_it_needs_and_nothing_else(name: str) -> None:
    file = source(name)
    needed = {needed for names in file.needs.values() for needed in names}
    used = names_of(file.text).used
    assert used - needed - set(file.exports) <= BUILT_IN, "these names are used, and the header does not need them"
    assert needed <= used, "the header needs these names, and they are not used"


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_gives_a_value_to_what_it_exports_and_to_nothing_else(name: str) -> None:
    file = source(name)
    assert names_of(file.text).assigned == set(file.exports)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_describes_its_arguments_and_can_be_put_together(name: str) -> None:
    assert re.search(r"(?m)^-- KEYS .*\n-- ARGV .*\n(?:--  .*\n)*-- Returns: ", source(name).text)
    text = script(name).text.decode()
    assert "--" not in text
    assert names_of(text).used <= BUILT_IN


def test_every_export_is_needed_by_a_file() -> None:
    needed = {(library, name) for user in NAMES for library, names in source(user).needs.items() for name in names}
    assert {(library, name) for library in LIBRARIES for name in source(library).exports} == needed


def test_a_name_that_a_library_does_not_export_cannot_be_needed() -> None:
    driver = read_source("driver", "-- needs calls: split, tear\nreturn split(tear, 1)\n")
    with pytest.raises(LookupError, match=r"driver\.lua needs tear, which calls\.lua does not export"):
        assemble(driver)


@pytest.mark.parametrize("name", NAMES)
def test_files_and_functions_are_short(name: str) -> None:
    file = source(name)
    long = {name: lines for name, lines in names_of(file.text).functions.items() if lines > MAX_FUNCTION_LINES}
    assert (long, file.text.count("\n") <= MAX_FILE_LINES) == ({}, True)


def test_the_layout_of_keys_is_documented() -> None:
    documented = {re.match(r":[a-z_]+", code(cell)[0])[0] for cell in LAYOUT}  # type: ignore[index]  # fails if it is none
    used = {key for name in NAMES for key in re.findall(r"'(:[a-z_]+)", source(name).text)}
    assert used == documented


def test_the_reader_of_lua_knows_scopes() -> None:
    found = names_of(
        """
        local a, b = 1, {c = d, [e] = f.g}
        for h, i in pairs(a) do local j = h if j then k = i elseif l then m() else local n end end
        function o(p) return function(...) return p, n, '-- q' end end
        repeat local r until s
        """
    )
    assert found.used == {"d", "e", "f", "pairs", "k", "l", "m", "n", "o", "s"}
    assert found.assigned == {"k", "o"}
    assert list(found.functions.values()) == [1, 1]
