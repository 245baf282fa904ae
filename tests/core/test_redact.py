"""Redaction: what is a secret is hidden, what is none stays, and no text takes long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.clock import ticks
from reprieve.core.redact import HIDDEN, MAX_TEXT_CHARS, MAX_URL_CHARS, mask_url, redact, redact_source

SECRET = "hunter2-Zq9x"  # noqa: S105 - not a real one
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"

TEXTS = [
    f"cannot reach postgresql://bob:{SECRET}@db.acme.example:5432/shop",
    f"redis://:{SECRET}@10.0.0.7/0 refused",
    f"amqp://bob:pa/{SECRET}@mq",
    f"login failed: user=bob password={SECRET}",
    f"login failed: PASSWORD: {SECRET}, user: bob",
    f"connect(host='a', passwd='{SECRET}', db='x')",
    f'{{"api_key": "{SECRET}", "user": "bob"}}',
    f"{{'X-Api-Key': '{SECRET}'}}",
    f"GET /v1?token={SECRET}&page=2 returned 401",
    f"client_secret={SECRET};",
    f"aws_secret_access_key = {SECRET}",
    f"Authorization: Bearer {SECRET}",
    f"Authorization: Basic {SECRET}=",
    f"sent Bearer {SECRET} to the API",
    f"Set-Cookie: {SECRET}",
    f"SECRET_TOKEN=>{SECRET}",
    f'password="{SECRET} with a space"',
]
SHAPES = [
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "github_pat_11ABCDEFG0abcdefghijkl_mnop",
    "sk-proj-abcdefghijklmnop1234",
    "sk_live_4eC39HqLyjWDarjtT1zdp7dc",
    "xoxb-123456789012-abcdefghij",
    "AIzaSyA-1234567890abcdefghijklmnopqrstu",
    "SG.abcdefghijklmnop1234.abcdefghijklmnop1234567890",
    JWT,
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
]
HARMLESS = [
    "connection refused by http://mx.acme.example:25/in?mail=ana@acme.example",
    "HTTPConnectionPool(host='10.0.0.7', port=80): Max retries exceeded",
    "Basic authentication is not supported",
    "550 5.1.1 <ana@acme.example>: no such user",
    "KeyError: 'colour'",
    "Unexpected token < in JSON at position 0",
    "postgresql://bob@db/shop does not answer",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_secret_with_a_name_is_hidden_and_its_name_stays(text: str) -> None:
    shown = redact(text)
    assert SECRET not in shown
    assert HIDDEN in shown
    # What stands before the secret is needed to understand the message.
    assert shown.startswith(text[:4])


@pytest.mark.parametrize("shape", SHAPES)
def test_a_secret_that_is_known_by_its_looks_is_hidden(shape: str) -> None:
    assert redact(f"the provider refused {shape} today") == f"the provider refused {HIDDEN} today"


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_only_literals_are_hidden_in_source_lines() -> None:
    line = "smtp.login(user, password=settings.password, token=read_token())"
    assert redact_source(line) == line
    assert redact_source(f'connect(password="{SECRET}", host="mx")') == f'connect(password={HIDDEN}, host="mx")'
    assert (
        redact_source(f"headers = {{'Authorization': f'Bearer {SECRET}'}}")
        == f"headers = {{'Authorization': {HIDDEN}}}"
    )
    assert redact_source(f'app = Reprieve("redis://:{SECRET}@db")') == f'app = Reprieve("redis://:{HIDDEN}@db")'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r'{"password": "hun\"ter2xyz", "a": 1}', f'{{"password": {HIDDEN}, "a": 1}}'),
        ("Cookie: a=b; session=abcdef\nnext", f"Cookie: {HIDDEN}\nnext"),
        ("Authorization: Custom abc, def", f"Authorization: {HIDDEN}"),
        ("sent Bearer abc.def.ghi123 there", f"sent Bearer {HIDDEN} there"),
        ("pass=foo user=bob", f"pass={HIDDEN} user=bob"),
        ("passenger=12 compass=3", "passenger=12 compass=3"),
    ],
)
def test_a_secret_is_hidden_to_its_end(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_a_login_in_source_shows_no_literals() -> None:
    assert redact_source('smtp.login("me", "hunter2")') == f"smtp.login({HIDDEN}, {HIDDEN})"
    assert redact_source('get(url, auth=("me", "pw"))') == f"get(url, auth=({HIDDEN}, {HIDDEN}))"
    assert redact_source("smtp.login(user, password)") == "smtp.login(user, password)"


def test_a_url_is_shown_without_its_secrets_and_bounded() -> None:
    assert mask_url(f"postgresql://bob:{SECRET}@db/shop?sslpassword={SECRET}&x=1") == (
        f"postgresql://bob:{HIDDEN}@db/shop?sslpassword={HIDDEN}&x=1"
    )
    assert len(mask_url("sqlite:///" + "x" * 1_000)) == MAX_URL_CHARS
    assert mask_url("redis://a\x1b[0m") == "redis://a?[0m"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis//:{SECRET}@h", f"redis{HIDDEN}@h"),
        (f"redis:/:{SECRET}@h/0", f"redis{HIDDEN}@h/0"),
        (f"redis:{SECRET}@h", f"redis{HIDDEN}@h"),
        (f"//:{SECRET}@h", f"{HIDDEN}@h"),
        (f"bob:{SECRET}@h/db", f"{HIDDEN}@h/db"),
        (f"{SECRET}@h", f"{HIDDEN}@h"),
        (f"postgres:bob:{SECRET}@h/db", f"postgres{HIDDEN}@h/db"),
        (f"my sql://bob:{SECRET}@h", f"{HIDDEN}@h"),
        (f" redis://:{SECRET}@h", f" redis://:{HIDDEN}@h"),
        (f"redis://{SECRET}@h", f"redis://{HIDDEN}@h"),
        (f"redis://:{SECRET}#h:6379/0", f"redis://:{HIDDEN}"),
        (f"redis://h:{SECRET}", f"redis://h:{HIDDEN}"),
        (f"redis//:{SECRET}", f"redis//:{HIDDEN}"),
        (f"postgresql//bob:{SECRET}", f"postgresql//bob:{HIDDEN}"),
        (f"redis://bob:{'1' * MAX_TEXT_CHARS}@h", f"redis://bob:{HIDDEN}"),
        (f"host=h password={SECRET} user=bob", f"host=h password={HIDDEN} user=bob"),
        (f"host=h password = '{SECRET} a' user=bob", f"host=h password = {HIDDEN} user=bob"),
        (f"user=bob;PWD={SECRET}", f"user=bob;PWD={HIDDEN}"),
        (f"postgresql://h/db password={SECRET}", f"postgresql://h/db password={HIDDEN}"),
    ],
)
def test_a_url_with_a_typo_is_masked(url: str, shown: str) -> None:
    assert mask_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://bob@h:5432/db?connect_timeout=5",
        "redis://h1:26379,h2:26379/0?sentinel=mail",
        "redis://[::1]:6379/0",
        "redis://h/0?prefix=a:b",
        "unix:///run/redis.sock",
        "sqlite://:memory:",
        "sqlite:/jobs.db",
        "sqlite::memory:",
        "C:/jobs.db",
        "jobs.db",
        "localhost:6379",
    ],
)
def test_what_is_no_secret_of_a_url_is_shown(url: str) -> None:
    assert mask_url(url) == url


@given(st.text())
def test_any_text_stays_a_text_of_bounded_length(text: str) -> None:
    assert len(redact(text)) <= len(text) + 3 * (len(text) + 1)
    assert redact(redact(text)) == redact(text)


def test_a_long_text_is_cut() -> None:
    assert len(redact("x" * 10 * MAX_TEXT_CHARS)) == MAX_TEXT_CHARS


@pytest.mark.faults
@pytest.mark.parametrize(
    "part",
    ["a-", "://", "://a:", "token", "password", "password='", "Bearer ", "eyJa.", "-----BEGIN ", '"', "sk-", "key: "],
)
def test_no_text_takes_long(part: str) -> None:
    text = part * (2 * MAX_TEXT_CHARS // len(part))
    began = ticks()
    redact(text)
    redact_source(text)
    assert ticks() - began < 5
