"""Suggestions for mistyped words."""

from reprieve.core.suggestion import nearest, suggest

SETTINGS = ["url", "durability", "stuck_after"]
TASKS = ["shop.mail.send_welcome", "shop.bills.send_bill"]


def test_a_word_that_is_nearly_known_is_suggested() -> None:
    assert nearest("durabilty", SETTINGS) == "durability"
    assert nearest("Stuck_After", SETTINGS) == "stuck_after"


def test_the_path_before_a_name_need_not_be_alike() -> None:
    assert nearest("send_welcom", TASKS) == "shop.mail.send_welcome"
    assert nearest("store.send_bil", TASKS) == "shop.bills.send_bill"


def test_a_word_that_is_like_none_is_answered_with_all() -> None:
    assert nearest("colour", SETTINGS) is None
    assert suggest("colour", SETTINGS, "settings") == "the settings are url, durability, stuck_after"
    assert suggest("durabilty", SETTINGS, "settings") == "did you mean durability?"


def test_where_nothing_is_known_that_is_said() -> None:
    assert suggest("send", [], "tasks") == "there are no tasks"
