"""The page about tasks lists every option that there is, with its default."""

import inspect
from typing import get_args

import pytest

from reprieve import Reprieve
from reprieve.call import Options
from reprieve.config import Settings
from reprieve.core.duration import seconds
from reprieve.core.policy import DAY_SECONDS
from reprieve.producer import BULK
from reprieve.stores.protocol import KEY_RETENTION_SECONDS, MAX_PAYLOAD_BYTES
from reprieve.testing import FakeClock
from tests.docs.page import code, table, text_of

PAGE = text_of("docs/learn/tasks.md")
DECLARE, _, ENQUEUE = PAGE.partition("## Enqueue")


def rows(text: str) -> dict[str, dict[str, str]]:
    return {code(row["option"])[0]: row for row in table(text, "option", "type")}


def test_every_option_of_a_task_has_a_row() -> None:
    (options,) = get_args(inspect.signature(Reprieve.task).parameters["options"].annotation)
    assert list(rows(DECLARE)) == list(options.__annotations__)


def test_every_option_of_a_job_has_a_row() -> None:
    assert list(rows(ENQUEUE)) == list(Options.__annotations__)


@pytest.mark.parametrize("option", ["queue", "dependency", "priority"])
def test_every_default_of_a_task_is_that_of_the_code(option: str) -> None:
    with Reprieve("sqlite://:memory:") as app:

        @app.task
        def send() -> None: ...

        default = getattr(send.declaration, option)
    assert code(rows(DECLARE)[option]["default"]) == [repr(default).replace("'", '"')]


def test_every_number_is_that_of_the_code() -> None:
    for text, number in (
        ("`stuck_after`, 30m", seconds("30m") == Settings().stuck_after),
        ("enqueue_many` stores a\nthousand", BULK == 1_000),
        ("a payload is 256 KiB", MAX_PAYLOAD_BYTES == 256 * 1024),
        ("half an hour", Settings().stuck_after == 1_800),
    ):
        assert text in PAGE
        assert number, text


def test_a_key_is_kept_for_as_long_as_its_row_says() -> None:
    assert seconds(rows(ENQUEUE)["key_ttl"]["default"]) == KEY_RETENTION_SECONDS


def test_the_longest_wait_of_a_job_with_a_delay_of_its_own_is_what_its_row_says() -> None:
    with Reprieve("sqlite://:memory:", clock=FakeClock()) as app:

        @app.task
        def send() -> None: ...

        job = send.using(retry_delay="1h").enqueue().fetch()
        policy = app.registry.policy_of(job)
        assert [policy.delay(failures, 0.5) for failures in (1, 2, 3)] == [3_600, 7_200, 14_400]
        assert policy.delay(30) == DAY_SECONDS == seconds("1d")
        assert "1d if only `retry_delay` is given" in rows(ENQUEUE)["max_retry_delay"]["meaning"]
