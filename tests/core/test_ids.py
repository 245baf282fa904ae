"""Job ids."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.ids import (
    PARTITIONS,
    created_at,
    id_from_bytes,
    id_to_bytes,
    is_id,
    make_id,
    parse_id,
    partition_of,
)
from reprieve.errors import InvalidId, JobNotFound

NOW = 1_760_000_000_000


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**62 - 1), st.integers(0, PARTITIONS - 1))
def test_an_id_is_a_uuid_that_carries_its_moment_and_partition(now: int, chance: int, partition: int) -> None:
    text = make_id(now, chance, partition)
    assert UUID(text).version == 7
    assert UUID(text).variant == "specified in RFC 4122"
    assert (created_at(text), partition_of(text), parse_id(text)) == (now, partition, text)
    assert UUID(text).int & (2**62 - 1) == chance
    assert id_to_bytes(text) == UUID(text).bytes
    assert id_from_bytes(UUID(text).bytes) == text


def test_ids_sort_by_time() -> None:
    assert make_id(NOW, 2**62 - 1, 9) < make_id(NOW + 1, 0, 0)


def test_every_spelling_of_an_id_is_one_id() -> None:
    text = make_id(NOW, 42)
    spellings = [text.upper(), text.replace("-", ""), "{" + text + "}"]
    assert {parse_id(spelling) for spelling in spellings} == {text}
    assert [is_id(spelling) for spelling in [text, *spellings]] == [True, False, False, False]


@pytest.mark.parametrize(
    "text", ["", "42", "j\x00b", "123e4567-e89b-12d3-a456-42661417400", "x" * 36, "0" * 10_000_000]
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidId, match="is not a job id") as caught:
        parse_id(text)
    assert not is_id(text)
    assert caught.value.code == "invalid_id"
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("text", ["123e4567-e89b-12d3-a456-426614174000", "{C56A4180-65AA-42EC-A945-5FD21DEC0538}"])
def test_the_uuid_of_another_system_is_no_job(text: str) -> None:
    with pytest.raises(JobNotFound, match=f"there is no job {text.strip('{}').lower()}") as caught:
        parse_id(text)
    assert caught.value.code == "job_not_found"
    assert not is_id(text)


@pytest.mark.parametrize(("now", "partition"), [(-1, 0), (2**48, 0), (NOW, -1), (NOW, PARTITIONS)])
def test_what_does_not_fit_an_id_is_refused(now: int, partition: int) -> None:
    with pytest.raises(InvalidId):
        make_id(now, 1, partition)
