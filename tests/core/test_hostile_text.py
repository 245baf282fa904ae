"""Texts that are made to be slow to read: fingerprints, classifiers and redaction take 2 ms at the most."""

import time
from collections.abc import Callable

import pytest

from reprieve.core.classify import classify
from reprieve.core.fingerprint import fingerprint, mask
from reprieve.core.redact import mask_url, redact, redact_source

MAX_SECONDS = 0.002

PARTS = [
    *"aA1-.:/'\"<>()@=+_ é#$\\\n\0",
    *("a.", "._", "a-", "A-", "1-", "a/", "::", "a@", "http://", "://a:", "arn:", "Key (a)=(", "contains (", "a@b, "),
    *(
        "input_value=",
        "'a', ",
        "1, ",
        "+1 ",
        "ab_",
        "Jan ",
        "Mon, ",
        'server at "',
        "550 5.1.1 ",
        "a: '",
        "ff:",
        "a1b2",
    ),
    *("token", "password", "password='", "Bearer ", "eyJa.", "-----BEGIN ", "sk-", "key: ", "retry after ", "[Errno "),
    *("An error occurred (", "\x1b[", "certificate_verify", "rate ", "Ab1+/"),
]

READERS: dict[str, Callable[[str], object]] = {
    "fingerprint": fingerprint,
    "classify a text": classify,
    "classify an exception": lambda text: classify(RuntimeError(text)),
    "redact": redact,
    "redact_source": redact_source,
    "mask_url": mask_url,
}


@pytest.mark.faults
@pytest.mark.parametrize("reader", READERS)
def test_no_text_takes_longer_than_two_milliseconds(reader: str) -> None:
    read = READERS[reader]
    for part in PARTS:
        for before in ("", " ", "a@", "<", "password "):
            times = []
            for number in range(7):
                # Another text each time, since what was read is remembered.
                text = before + part * (8_000 + number)
                began = time.thread_time()
                read(f"{number}{text}")
                times.append(time.thread_time() - began)
                if times[-1] < MAX_SECONDS:
                    break
            assert min(times) < MAX_SECONDS, (before, part)


@pytest.mark.parametrize("ruler", ["-", "=", "*", "~"])
def test_length_of_a_ruler_makes_no_difference(ruler: str) -> None:
    (template,) = {mask(f"bad input {ruler * length} see below") for length in (8, 9, 40, 80)}
    assert mask(template) == template
