"""Bounds of groups of lanes are short, whatever the names of the lanes."""

import pytest

from reprieve.stores.redis.lane_names import bound_between


@pytest.mark.parametrize(
    ("name", "following", "bound"),
    [
        ("default\0acme\0send", "default\0bert\0send", "default\0b"),
        ("default\0a", "default\0ab", "default\0ab"),
        ("a" * 1_300, "b" * 1_300, "b"),
        ("é", "ü" * 300, "ü"),
    ],
)
def test_bound_is_the_shortest_string_that_separates_two_names(name: str, following: str, bound: str) -> None:
    assert bound_between(name, following) == bound
    assert name.encode() < bound.encode() <= following.encode()
