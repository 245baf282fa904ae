"""What was enqueued, and how a test is sure of it."""

from dataclasses import dataclass

import pytest

from reprieve import Reprieve, Task
from reprieve.testing import FakeClock, assert_enqueued, drain, enqueued


@dataclass
class Order:
    number: int


@pytest.fixture
def send(app: Reprieve) -> Task[[int, str], None]:
    def send(user: int, template: str = "hello") -> None:
        pass

    return app.task(name="send")(send)


def test_arguments_are_compared_however_they_were_passed(app: Reprieve, send: Task[[int, str], None]) -> None:
    send.enqueue(user=42)  # type: ignore[call-arg]  # the template has a default
    assert_enqueued(app, send.call(42, "hello"))
    with pytest.raises(AssertionError):
        assert_enqueued(app, send.call(43, "hello"))
    with pytest.raises(AssertionError):
        assert_enqueued(app, send.call(42, "bye"))


def test_arguments_are_compared_as_what_the_task_will_get(app: Reprieve) -> None:
    @app.task
    def ship(order: Order) -> None:
        pass

    ship.enqueue(Order(7))
    (found,) = assert_enqueued(app, ship.call(Order(7)))
    assert found.arguments == {"order": Order(7)}


def test_a_task_alone_means_any_call_of_it(app: Reprieve, clock: FakeClock, send: Task[[int, str], None]) -> None:
    @app.task
    def other() -> None:
        pass

    send.enqueue(1, "a")
    clock.advance("1s")
    send.enqueue(2, "b")
    assert len(assert_enqueued(app, send, times=2)) == 2
    assert_enqueued(app, other, times=0)
    assert [one.arguments["user"] for one in enqueued(app, send)] == [1, 2]


@pytest.mark.parametrize(
    ("option", "other"),
    [
        ({"tenant": "acme"}, {"tenant": "bolt"}),
        ({"queue": "mail"}, {}),
        ({"priority": 1}, {"priority": 2}),
        ({"key": "a"}, {"key": "b"}),
        ({"delay": "5m"}, {"delay": "6m"}),
        ({"deadline": "5m"}, {}),
        ({"max_attempts": 3}, {}),
        ({"retry_delay": "1m"}, {"retry_delay": "2m"}),
        ({"dependency": "ses"}, {}),
        ({"group": "batch"}, {}),
    ],
    ids=lambda options: "-".join(options) or "none",
)
def test_options_are_compared_when_they_are_given(
    app: Reprieve, send: Task[[int, str], None], option: dict[str, object], other: dict[str, object]
) -> None:
    call = send.using(**option).call(1, "a")  # type: ignore[arg-type]  # one of each kind
    send.using(**other).enqueue(1, "a")  # type: ignore[arg-type]  # as above
    assert_enqueued(app, send.call(1, "a"))
    with pytest.raises(AssertionError):
        assert_enqueued(app, call)
    send.using(**option).enqueue(1, "a")  # type: ignore[arg-type]  # as above
    assert_enqueued(app, call, times=1)


def test_a_failed_assertion_lists_what_was_enqueued_instead(app: Reprieve, send: Task[[int, str], None]) -> None:
    send.using(tenant="acme", delay="5m").enqueue(1, "a")
    with pytest.raises(AssertionError) as failed:
        assert_enqueued(app, send.using(tenant="bolt").call(1, "a"))
    assert str(failed.value) == (
        "enqueued 0 times, expected at least once:\n"
        "  <send(user=1, template='a') tenant='bolt'>\n"
        "all that was enqueued:\n"
        "  <send(user=1, template='a') tenant='acme' delay=\"5m\" waiting>"
    )


def test_a_failed_assertion_says_when_nothing_was_enqueued(app: Reprieve, send: Task[[int, str], None]) -> None:
    with pytest.raises(AssertionError, match="nothing was enqueued at all"):
        assert_enqueued(app, send, times=1)


def test_a_failed_assertion_does_not_list_for_ever(app: Reprieve, send: Task[[int, str], None]) -> None:
    app.enqueue_many(send.call(number, "a") for number in range(25))
    with pytest.raises(AssertionError, match="and 5 more"):
        assert_enqueued(app, send, times=1)


async def test_coroutines_can_look_too(app: Reprieve, send: Task[[int, str], None]) -> None:
    await send.aenqueue(1, "a")
    assert_enqueued(app, send.call(1, "a"), times=1)


def test_jobs_are_seen_whatever_has_become_of_them(app: Reprieve, send: Task[[int, str], None]) -> None:
    app.enqueue_many(send.call(number, "a") for number in range(150))
    drain(app)
    assert {one.job.state for one in enqueued(app)} == {"succeeded"}
    assert {one.arguments["user"] for one in enqueued(app)} == set(range(150))


def test_a_job_whose_task_is_gone_is_shown_as_it_is_stored(app: Reprieve, send: Task[[int, str], None]) -> None:
    send.enqueue(1, "a")
    stranger = Reprieve("sqlite://:memory:", clock=app.clock)
    with stranger.override(store=app.store):
        (one,) = enqueued(stranger)
    assert one.arguments == {"payload": [[1, "a"], {}]}
