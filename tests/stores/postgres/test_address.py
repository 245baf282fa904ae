"""A URL names what libpq would take it for, and nothing shows its secrets."""

from traceback import format_exception

import pytest
from psycopg.conninfo import conninfo_to_dict

from reprieve.errors import InvalidUrl
from reprieve.stores.postgres.address import address_of


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("postgresql:///app", {"dbname": "app"}),
        ("postgresql:///app?host=/var/run/postgresql", {"dbname": "app", "host": "/var/run/postgresql"}),
        ("postgresql://%2Fvar%2Frun/app", {"dbname": "app", "host": "/var/run"}),
        ("postgres://ana@h1:1,h2:2/app?schema=jobs", {"host": "h1,h2", "port": "1,2", "user": "ana", "dbname": "app"}),
        ("postgresql://ana:a%20b%2Bc%27%5C@h/app", {"password": "a b+c'\\"}),
        ("postgresql://h/app?password=a%20b&schema=jobs&options=-c%20geqo%3Doff", {"password": "a b"}),
        ("postgresql://h/app?options=-c%20geqo%3Doff", {"options": "-c geqo=off"}),
        ("postgresql://h/app", {"application_name": "reprieve", "connect_timeout": "10"}),
        ("postgresql://h/app?connect_timeout=3&application_name=shop", {"connect_timeout": "3"}),
        ("postgresql://h/app?application_name=shop", {"application_name": "shop"}),
    ],
)
def test_url_says_what_libpq_reads_in_it(url: str, named: dict[str, str]) -> None:
    assert named.items() <= conninfo_to_dict(address_of(url).conninfo).items()


def test_environment_says_what_the_url_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGAPPNAME", "shop")
    assert "application_name" not in conninfo_to_dict(address_of("postgresql://h/app").conninfo)


def test_schema_and_the_server_to_listen_to_are_taken_out() -> None:
    address = address_of("postgresql://pooler/app?schema=jobs&listen=postgresql%3A%2F%2Fana%3Aa%252Bb%40db%2Fapp")
    assert address.schema == '"jobs"'
    assert conninfo_to_dict(address.conninfo)["host"] == "pooler"
    listener = conninfo_to_dict(address.listen_conninfo)
    assert (listener["host"], listener["password"], listener["application_name"]) == ("db", "a+b", "reprieve")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ana:secret@host:port/db",
        "postgresql://ana:se%zzcret@host/db",
        "postgresql://ana:secret@ho st/db?x=1",
        "postgresql://h/db?listen=postgresql%3A%2F%2Fana%3Asecret%40h%3Aport%2Fdb",
        "postgresql://h/db?schema=a;b",
        "postgresql://h/db?schema=pg_x",
        f"postgresql://h/db?schema={'a' * 55}",
    ],
)
def test_url_that_cannot_be_read_is_refused(url: str) -> None:
    with pytest.raises(InvalidUrl) as caught:
        address_of(url)
    shown = "".join(format_exception(caught.value))
    assert not any(word in shown for word in ("secret@", "se%zzcret", "secret%40"))


def test_address_is_shown_without_its_passwords() -> None:
    address = address_of("postgresql://ana:hunter2@h/db?listen=postgresql%3A%2F%2Fana%3Ahunter3%40h%2Fdb")
    assert repr(address) == 'Address(h/db, "reprieve")'
