"""The table of what is indexed stands in the documentation as it stands in the code."""

from reprieve.stores.finding_table import table_lines
from tests.docs.page import text_of


def test_page_about_stores_has_the_table_of_what_is_indexed() -> None:
    assert "\n".join(table_lines()) in text_of("docs/extend/stores.md")
