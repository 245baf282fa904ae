"""Values of the wrong type are refused where they enter, and enum members count as their values."""

import math
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path

import pytest

from reprieve import Reprieve, ReprieveError, compat
from reprieve.config import Settings, load
from reprieve.errors import InvalidPolicy, InvalidSetting, ValidationError
from reprieve.testing import drain


class Queue(str, Enum):  # noqa: UP042 - the older form, which formats as its name
    MAIL = "mail"


class Tenant(StrEnum):
    ACME = "acme"


class Level(IntEnum):
    FIRST = 1


@pytest.fixture
def app() -> Reprieve:
    return Reprieve("sqlite://:memory:", settings=Settings())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_attempts": 5.0}, "max_attempts must be a whole number of 1 or more, got 5.0"),
        ({"max_attempts": True}, "max_attempts must be a whole number of 1 or more, got True"),
        ({"max_attempts": 10**30}, "max_attempts must be a whole number from 1 to"),
        ({"key": None}, "option key of a job must be text, got None"),
        ({"key": 5}, "option key of a job must be text, got 5"),
        ({"key": "a\0b"}, "option key of a job must be 0–255 printable characters"),
        ({"tenant": "a\ud800"}, "option tenant of a job must be 0–255 printable characters"),
        ({"queue": "q" * 256}, "option queue of a job must be 0–255 printable characters"),
        ({"group": b"g"}, "option group of a job must be text, got b'g'"),
        ({"dependency": 5}, "dependency of a job must be a name or a function"),
        ({"dependency": "a\nb"}, "dependency of a job must be 0–255 printable characters"),
        ({"priority": True}, "priority of a job must be 1–9, 1 first, got True"),
        ({"priority": 1.0}, "priority of a job must be 1–9, 1 first, got 1.0"),
        ({"delay": math.nan}, "delay must be a duration"),
        ({"delay": True}, "delay must be a duration"),
        ({"deadline": math.inf}, "deadline must be a duration"),
        ({"key_ttl": -1}, "key_ttl must be a duration"),
        ({"retry_delay": [1]}, "retry_delay must be a duration"),
        ({"at": 5}, "option at of a job must be a datetime with a time zone, got 5"),
    ],
)
def test_an_option_of_the_wrong_type_is_refused_by_its_name(
    app: Reprieve, options: dict[str, object], words: str
) -> None:
    @app.task
    def send() -> None: ...

    with pytest.raises(ReprieveError) as caught:
        send.using(**options)  # type: ignore[arg-type]  # that is the point
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": 5}, "queue of task"),
        ({"queue": "ma\0il"}, "queue of task"),
        ({"name": "se\nnd"}, "name of task"),
        ({"dependency": "s\ud800s"}, "dependency of task"),
        ({"priority": True}, "priority of task"),
        ({"timeout": True}, "timeout of task"),
        ({"result_ttl": math.nan}, "result_ttl of task"),
        ({"executor": ["thread"]}, "executor of task"),
    ],
)
def test_an_option_of_a_task_is_refused_by_its_name(app: Reprieve, options: dict[str, object], words: str) -> None:
    with pytest.raises(ReprieveError) as caught:
        app.task(**options)(lambda: None)  # type: ignore[call-overload]  # that is the point
    assert str(caught.value).startswith(words)


def test_enum_members_count_as_their_values(app: Reprieve) -> None:
    ran: list[str] = []

    @app.task(queue=Queue.MAIL, name=Tenant.ACME, executor=None)
    def send(dependency: str) -> None:
        ran.append(dependency)

    options = {"tenant": Tenant.ACME, "key": Queue.MAIL, "group": Queue.MAIL, "priority": Level.FIRST}
    handle = send.using(**options, dependency=Queue).enqueue("mail")  # type: ignore[arg-type]  # enums
    job = handle.fetch()
    names = (job.queue, job.task, job.tenant, job.key, job.group, job.dependency)
    assert names == ("mail", "acme", "acme", "mail", "mail", "mail")
    assert {type(name) for name in names} == {str}
    assert (job.priority, type(job.priority)) == (1, int)
    assert send.using(tenant="acme", key="mail").enqueue("mail").id == handle.id
    drain(app)
    assert ran == ["mail"]


def test_retry_settings_of_a_job_are_stored_as_plain_numbers(app: Reprieve) -> None:
    @app.task
    def send() -> None: ...

    job = send.using(retry_delay="5s", max_retry_delay=Decimal(60), max_attempts=Level.FIRST).enqueue().fetch()  # type: ignore[arg-type]  # any number
    assert job.override is not None
    assert (job.override.retry_delay, job.override.max_retry_delay, job.override.max_attempts) == (5.0, 60.0, 1)
    assert job.max_attempts == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[policies.send]\nmax_attempts = 3.0", "max_attempts must be a whole number of 1 or more, got 3.0"),
        ("[policies.send]\nmax_attempts = true", "max_attempts must be a whole number of 1 or more, got True"),
        ('[policies.send]\nmax_attempts = "3"', "max_attempts must be a whole number of 1 or more, got '3'"),
        ("[policies.send]\nretry_delay = true", "must be a duration"),
        ("[policies.send]\npreset = 5", "there is no preset 5"),
        ("[[rules]]\ncode = 5\nmax_attempts = true", "max_attempts of a rule must be a whole number"),
        ('[[rules]]\ncode = true\nkind = "transient"', "code of a rule must be a whole number"),
        ("slots = 2.0", "must be a whole number of 1 or more, got 2.0"),
        ("slots = true", "must be a whole number of 1 or more, got True"),
        ("lease = nan", "must be a duration"),
        ("lease = true", "must be a duration"),
        ('durability = ["full"]', "must be one of full, fast, strict"),
        ("url = 5", "must be text"),
    ],
)
def test_a_setting_of_the_wrong_type_is_refused_with_its_file(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "reprieve.toml").write_text(text)
    with pytest.raises(InvalidSetting) as caught:
        load({}, tmp_path)
    assert "reprieve.toml" in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slots", 2.5),
        ("slots", True),
        ("processes", "2"),
        ("lease", "soon"),
        ("lease", math.nan),
        ("heartbeat", math.inf),
        ("grace", -1),
        ("url", 5),
        ("app", None),
        ("policy", ["email"]),
        ("profile", "testing"),
        ("durability", None),
        ("shared", "yes"),
        ("rules", ["smtp"]),
        ("policies", {"send": "email"}),
    ],
)
def test_settings_in_code_are_checked_by_type(name: str, value: object) -> None:
    with pytest.raises(InvalidSetting, match=name):
        Settings(**{name: value})  # type: ignore[arg-type]  # that is the point


def test_settings_in_code_are_kept_as_plain_values() -> None:
    settings = Settings(lease="30s", slots=Level.FIRST, policy=Queue.MAIL)  # type: ignore[arg-type]  # any duration
    assert (settings.lease, settings.slots, settings.policy) == (30.0, 1, "mail")
    assert {type(settings.slots), type(settings.policy)} == {int, str}


def test_the_policy_of_an_app_is_a_policy() -> None:
    with pytest.raises(InvalidPolicy, match="policy of an app must be a Policy"):
        Reprieve("sqlite://:memory:", policy="email", settings=Settings())  # type: ignore[arg-type]  # that is the point


def test_only_calls_can_be_enqueued(app: Reprieve) -> None:
    @app.task
    def send() -> None: ...

    with pytest.raises(ValidationError, match="only calls can be enqueued"):
        app.enqueue(send)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ValidationError, match="only calls can be enqueued") as caught:
        app.enqueue_many([send.call(), None])  # type: ignore[list-item]  # as above
    assert caught.value.enqueued == []


def test_functions_of_existing_systems_check_their_numbers() -> None:
    assert compat.calculate_round_robin_priority(2) == 3
    for make in (
        lambda: compat.calculate_round_robin_priority(1.5),  # type: ignore[arg-type]  # that is the point
        lambda: compat.calculate_backoff_delay("1"),  # type: ignore[arg-type]  # as above
        lambda: compat.RetryPolicy(policy="email"),  # type: ignore[arg-type]  # as above
    ):
        with pytest.raises(ReprieveError):
            make()
