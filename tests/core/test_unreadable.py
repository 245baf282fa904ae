"""A job whose record cannot be read: what is known of it, and the raw bytes of its record."""

import pytest
from msgspec.structs import replace

from reprieve.core.job import Job
from reprieve.core.unreadable import MAX_WHY_CHARS, unreadable, unreadable_record

KNOWN = Job(id="0199c82c-c000-7abc-8def-2f6e11c40ae1", task="send", tenant="acme", version=3, created_at=1, due_at=2)


@pytest.mark.parametrize("raw", [b"", b"\0", b"\xc1\0\xff", b'[["a"],{}]'])
def test_raw_bytes_are_kept_whatever_they_are(raw: bytes) -> None:
    job = unreadable(KNOWN, raw, "Input data was truncated")
    record = unreadable_record(job)
    assert record is not None
    assert (record.why, record.raw) == ("Input data was truncated", raw)
    assert replace(job, payload=b"", cause=None) == KNOWN
    assert job.cause is not None
    assert (job.cause.code, job.cause.kind) == ("undecodable", "permanent")
    assert "Input data was truncated" in job.cause.reason


def test_payload_is_neither_text_nor_msgpack_whatever_the_reason() -> None:
    job = unreadable(KNOWN, b"raw", "Expected `int`,\n got `\ud800`" + "x" * 1_000)
    assert job.payload[:1] == b"\xc1"
    record = unreadable_record(job)
    assert record is not None
    assert record.why.startswith("Expected `int`, got `?`xxx")
    assert (len(record.why), record.raw) == (MAX_WHY_CHARS, b"raw")


def test_dead_job_is_dead_as_undecodable() -> None:
    assert unreadable(replace(KNOWN, state="dead"), b"", "").death == "undecodable"
    assert unreadable(replace(KNOWN, state="cancelled"), b"", "").death is None


def test_other_jobs_have_no_such_record() -> None:
    assert unreadable_record(replace(KNOWN, payload=b"[[],{}]")) is None
    assert unreadable_record(replace(KNOWN, payload=b"\xff{ no JSON")) is None
