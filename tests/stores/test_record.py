"""The packed record of a job: what it holds, and the bytes of 0.1.0, which every later release reads."""

from typing import Final

import msgspec
import pytest
from msgspec.structs import fields, replace

from reprieve.core.headers import Headers
from reprieve.core.ids import created_at, id_to_bytes
from reprieve.core.job import CancelRequest, Cause, Job, Suspicion
from reprieve.core.policy import Override
from reprieve.stores import record
from reprieve.stores.postgres import rows as postgres
from reprieve.stores.postgres.lane_ref import lane_of
from reprieve.stores.record import COLUMNS, Lease, PackedJob, RareFields
from reprieve.stores.redis import records as redis
from reprieve.stores.sql.lanes import LaneRef
from reprieve.stores.sqlite import rows as sqlite

ID: Final = "0199c82c-c000-7abc-8def-2f6e11c40ae1"
AT: Final = created_at(ID)
FRESH: Final = Job(
    id=ID,
    task="mail.send",
    queue="mail",
    tenant="acme",
    dependency="smtp",
    payload=b'{"to":"a@example.com"}',
    created_at=AT,
    due_at=AT,
    max_attempts=10,
    timeout=60.0,
)
RETRIED: Final = replace(
    FRESH,
    version=2,
    due_at=AT + 65_000,
    waiting_for="retry",
    deadline_at=AT + 86_400_000,
    attempt=1,
    charged=1,
    delay=4.5,
    cause=Cause(reason="451 try later", code="451", kind="transient", fingerprint="5be1c0de"),
    failed_at=AT + 60_000,
)
PARKED: Final = replace(
    RETRIED, version=4, waiting_for="gate", attempt=2, spared=1, parked_since_at=AT + 70_000, parked_on="smtp"
)
DEAD: Final = replace(
    RETRIED, version=20, due_at=AT, waiting_for="turn", state="dead", charged=10, death="exhausted", finished_at=AT + 9
)
FIRST_FULL: Final = replace(
    PARKED,
    group="nightly",
    priority=1,
    key="welcome-7",
    key_ttl=3600.0,
    override=Override(max_attempts=3, retry_delay=1.5, max_retry_delay=60.0),
    created_at=AT - 5,
    state="dead",
    attempt=12,
    charged=7,
    spared=3,
    death="poison",
    finished_at=AT + 80_000,
    crashes=2,
    granted=4,
    snoozes=6,
    is_manual=True,
)
"""It sets every field that the first records had."""
SUSPECT: Final = replace(FIRST_FULL, suspicion=Suspicion(sessions=1, processes=2))
NEW_DEADLINE: Final = replace(SUSPECT, deadline_from_at=AT + 75_000)
HEADERS: Final = Headers(
    traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    tracestate="vendor=1",
    tags=("nightly", "eu"),
    parent="0199c82c-c000-7abc-8def-2f6e11c40ae2",
    linked="0199c82c-c000-7abc-8def-2f6e11c40ae3",
    operation="import-7",
    credits=3,
    sla_at=AT + 90_000,
    region="eu-west-1",
    user="ana",
    own={"origin": "import"},
)
TAGGED: Final = replace(FRESH, headers=Headers(tags=("nightly",)))
WITH_HEADERS: Final = replace(NEW_DEADLINE, headers=HEADERS)
FULL: Final = replace(WITH_HEADERS, parked_until_at=AT + 85_000)
"""It sets every packed field."""
GOLDEN: Final = {
    "fresh": (
        FRESH,
        "94c4167b22746f223a2261406578616d706c652e636f6d227d0ac0cb404e000000000000",
    ),
    "retried": (
        RETRIED,
        (
            "95c4167b22746f223a2261406578616d706c652e636f6d227d0acf00000199cd531c00cb404e0000000000009ac0cf00"
            "000199c82dbde8a0c0c00101cb401200000000000084a6726561736f6ead34353120747279206c61746572a4636f6465"
            "a3343531a46b696e64a97472616e7369656e74ab66696e6765727072696e74a83562653163306465cf00000199c82daa"
            "60"
        ),
    ),
    "parked": (
        PARKED,
        (
            "95c4167b22746f223a2261406578616d706c652e636f6d227d0acf00000199cd531c00cb404e0000000000009dc0cf00"
            "000199c82dbde8a0c0c00201cb401200000000000084a6726561736f6ead34353120747279206c61746572a4636f6465"
            "a3343531a46b696e64a97472616e7369656e74ab66696e6765727072696e74a83562653163306465cf00000199c82daa"
            "6001cf00000199c82dd170a4736d7470"
        ),
    ),
    "dead": (
        DEAD,
        (
            "95c4167b22746f223a2261406578616d706c652e636f6d227d0acf00000199cd531c00cb404e000000000000dc0010c0"
            "c0a0c0c0010acb401200000000000084a6726561736f6ead34353120747279206c61746572a4636f6465a3343531a46b"
            "696e64a97472616e7369656e74ab66696e6765727072696e74a83562653163306465cf00000199c82daa6000c0a000a9"
            "657868617573746564cf00000199c82cc009"
        ),
    ),
    "full": (
        FIRST_FULL,
        (
            "95c4167b22746f223a2261406578616d706c652e636f6d227d0acf00000199cd531c00cb404e000000000000dc0013cf"
            "00000199c82cbffbcf00000199c82dbde8a977656c636f6d652d37cb40ac20000000000083ab6d6178417474656d7074"
            "7303aa726574727944656c6179cb3ff8000000000000ad6d6178526574727944656c6179cb404e0000000000000c07cb"
            "401200000000000084a6726561736f6ead34353120747279206c61746572a4636f6465a3343531a46b696e64a9747261"
            "6e7369656e74ab66696e6765727072696e74a83562653163306465cf00000199c82daa6003cf00000199c82dd170a473"
            "6d747002a6706f69736f6ecf00000199c82df8800406c3"
        ),
    ),
    "suspect": (
        SUSPECT,
        (
            "95c4167b22746f223a2261406578616d706c652e636f6d227d0acf00000199cd531c00cb404e000000000000dc0014cf"
            "00000199c82cbffbcf00000199c82dbde8a977656c636f6d652d37cb40ac20000000000083ab6d6178417474656d7074"
            "7303aa726574727944656c6179cb3ff8000000000000ad6d6178526574727944656c6179cb404e0000000000000c07cb"
            "401200000000000084a6726561736f6ead34353120747279206c61746572a4636f6465a3343531a46b696e64a9747261"
            "6e7369656e74ab66696e6765727072696e74a83562653163306465cf00000199c82daa6003cf00000199c82dd170a473"
            "6d747002a6706f69736f6ecf00000199c82df8800406c382a873657373696f6e7301a970726f63657373657302"
        ),
    ),
    "with a new deadline": (
        NEW_DEADLINE,
        (
            "95c4167b22746f223a2261406578616d706c652e636f6d227d0acf00000199cd531c00cb404e000000000000dc0015cf"
            "00000199c82cbffbcf00000199c82dbde8a977656c636f6d652d37cb40ac20000000000083ab6d6178417474656d7074"
            "7303aa726574727944656c6179cb3ff8000000000000ad6d6178526574727944656c6179cb404e0000000000000c07cb"
            "401200000000000084a6726561736f6ead34353120747279206c61746572a4636f6465a3343531a46b696e64a9747261"
            "6e7369656e74ab66696e6765727072696e74a83562653163306465cf00000199c82daa6003cf00000199c82dd170a473"
            "6d747002a6706f69736f6ecf00000199c82df8800406c382a873657373696f6e7301a970726f63657373657302cf0000"
            "0199c82de4f8"
        ),
    ),
    "with a tag": (
        TAGGED,
        "96c4167b22746f223a2261406578616d706c652e636f6d227d0ac0cb404e000000000000c081a47461677391a76e696768746c79",
    ),
    "with all headers": (
        WITH_HEADERS,
        (
            "96c4167b22746f223a2261406578616d706c652e636f6d227d0acf00000199cd531c00cb404e000000000000dc0015cf"
            "00000199c82cbffbcf00000199c82dbde8a977656c636f6d652d37cb40ac20000000000083ab6d6178417474656d7074"
            "7303aa726574727944656c6179cb3ff8000000000000ad6d6178526574727944656c6179cb404e0000000000000c07cb"
            "401200000000000084a6726561736f6ead34353120747279206c61746572a4636f6465a3343531a46b696e64a9747261"
            "6e7369656e74ab66696e6765727072696e74a83562653163306465cf00000199c82daa6003cf00000199c82dd170a473"
            "6d747002a6706f69736f6ecf00000199c82df8800406c382a873657373696f6e7301a970726f63657373657302cf0000"
            "0199c82de4f88bab7472616365706172656e74d93730302d346266393266333537376233346461366133636539323964"
            "30653065343733362d303066303637616130626139303262372d3031aa74726163657374617465a876656e646f723d31"
            "a47461677392a76e696768746c79a26575a6706172656e74d92430313939633832632d633030302d376162632d386465"
            "662d326636653131633430616532a66c696e6b6564d92430313939633832632d633030302d376162632d386465662d32"
            "6636653131633430616533a96f7065726174696f6ea8696d706f72742d37a76372656469747303a5736c614174cf0000"
            "0199c82e1f90a6726567696f6ea965752d776573742d31a475736572a3616e61a36f776e81a66f726967696ea6696d70"
            "6f7274"
        ),
    ),
    "parked until a time": (
        FULL,
        (
            "96c4167b22746f223a2261406578616d706c652e636f6d227d0acf00000199cd531c00cb404e000000000000dc0016cf"
            "00000199c82cbffbcf00000199c82dbde8a977656c636f6d652d37cb40ac20000000000083ab6d6178417474656d7074"
            "7303aa726574727944656c6179cb3ff8000000000000ad6d6178526574727944656c6179cb404e0000000000000c07cb"
            "401200000000000084a6726561736f6ead34353120747279206c61746572a4636f6465a3343531a46b696e64a9747261"
            "6e7369656e74ab66696e6765727072696e74a83562653163306465cf00000199c82daa6003cf00000199c82dd170a473"
            "6d747002a6706f69736f6ecf00000199c82df8800406c382a873657373696f6e7301a970726f63657373657302cf0000"
            "0199c82de4f8cf00000199c82e0c088bab7472616365706172656e74d93730302d346266393266333537376233346461"
            "36613363653932396430653065343733362d303066303637616130626139303262372d3031aa74726163657374617465"
            "a876656e646f723d31a47461677392a76e696768746c79a26575a6706172656e74d92430313939633832632d63303030"
            "2d376162632d386465662d326636653131633430616532a66c696e6b6564d92430313939633832632d633030302d3761"
            "62632d386465662d326636653131633430616533a96f7065726174696f6ea8696d706f72742d37a76372656469747303"
            "a5736c614174cf00000199c82e1f90a6726567696f6ea965752d776573742d31a475736572a3616e61a36f776e81a66f"
            "726967696ea6696d706f7274"
        ),
    ),
}
"""Jobs, and their records as release 0.1.0 writes them. A line is never changed: it says what stored jobs look like."""


def model_of(job: Job) -> Job:
    """Return the model of a job's lane and state, as a store makes it of its columns."""
    model = record.model_of(job.queue, job.tenant, job.task, job.dependency, job.group, job.lane_priority)
    return replace(model, state=job.state, waiting_for=job.waiting_for)


def pack(job: Job) -> bytes:
    """Pack a job with its due time, as a store does that has no column for it."""
    return record.pack(job, AT, None if job.due_at == job.created_at else job.due_at)


def unpack(data: bytes, job: Job) -> Job:
    """Unpack a record with the columns of a job."""
    return record.unpack(data, model_of(job), job.id, job.version, AT)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_record_of_the_first_release_is_read(name: str) -> None:
    job, written = GOLDEN[name]
    assert unpack(bytes.fromhex(written), job) == job


@pytest.mark.parametrize("name", GOLDEN)
def test_a_record_is_written_as_in_the_first_release(name: str) -> None:
    job, written = GOLDEN[name]
    assert pack(job).hex() == written


def test_every_field_of_a_job_is_packed_or_a_column() -> None:
    packed = {field.name for struct in (PackedJob, RareFields) for field in fields(struct)} - {"rare"}
    assert packed.isdisjoint(COLUMNS)
    assert packed | COLUMNS == {field.name for field in fields(Job)}


def test_every_packed_field_has_the_default_of_the_job() -> None:
    of_job = {field.name: field.default for field in fields(Job)}
    of_record = {field.name: field.default for field in fields(RareFields)}
    for name in ("created_at", "due_at"):  # a job has no default for these
        assert of_record.pop(name) is None
    assert of_record == {name: of_job[name] for name in of_record}


def test_the_full_job_sets_every_packed_field() -> None:
    """Otherwise a field that is packed or unpacked in the place of another might stay unnoticed."""
    unset = [
        field.name
        for field in fields(Job)
        if field.name not in COLUMNS and getattr(FULL, field.name) in (field.default, FRESH.created_at)
    ]
    assert unset == []
    values = [getattr(FULL, field.name) for field in fields(RareFields) if field.name != "is_manual"]
    assert len({repr(value) for value in values}) == len(values)


def test_a_fresh_job_is_packed_without_rare_fields() -> None:
    assert msgspec.msgpack.decode(pack(FRESH)) == [FRESH.payload, 10, None, 60.0]


def test_headers_of_a_fresh_job_are_packed_without_rare_fields() -> None:
    assert msgspec.msgpack.decode(pack(TAGGED)) == [FRESH.payload, 10, None, 60.0, None, {"tags": ["nightly"]}]


def test_rare_fields_are_packed_up_to_the_last_that_is_set() -> None:
    *_, rare = msgspec.msgpack.decode(pack(replace(FRESH, key="k")))
    assert rare == [None, None, "k"]


@pytest.mark.parametrize("count", range(len(fields(RareFields))))
def test_a_record_with_fewer_fields_is_read_with_defaults(count: int) -> None:
    *common, rare, _ = msgspec.msgpack.decode(pack(FULL))
    older = unpack(msgspec.msgpack.encode([*common, rare[:count]]), FULL)
    for field in fields(RareFields)[:count]:
        assert getattr(older, field.name) == getattr(FULL, field.name)
    for field in fields(RareFields)[max(count, 2) :]:
        assert getattr(older, field.name) == field.default
    assert older.headers is None


def test_a_record_with_fields_of_a_newer_release_is_read() -> None:
    *common, rare, headers = msgspec.msgpack.decode(pack(FULL))
    newer = msgspec.msgpack.encode([*common, [*rare, "new", {"newer": 1}], {**headers, "new": "x"}, "newest"])
    assert unpack(newer, FULL) == FULL


def test_a_lease_counts_as_an_attempt_and_a_version() -> None:
    leased = record.lease_model(model_of(RETRIED), Lease("s-1", AT + 7, CancelRequest(by="ann", reason="typo")))
    job = record.unpack(pack(RETRIED), leased, RETRIED.id, RETRIED.version, AT)
    assert (job.state, job.session, job.leased_at) == ("running", "s-1", AT + 7)
    assert (job.attempt, job.version) == (RETRIED.attempt + 1, RETRIED.version + 1)
    assert job.cancel_request == CancelRequest(by="ann", reason="typo")


@pytest.mark.parametrize("name", GOLDEN)
def test_a_row_of_sqlite_keeps_a_job(name: str) -> None:
    job, _ = GOLDEN[name]
    row, middle = sqlite.split_id(job.id)
    names = (job.queue, job.tenant, job.task, job.dependency, job.group, job.lane_priority)
    lane = LaneRef(1, *names, 2, 3, (4,), record.model_of(*names))
    numbers = {state: number for number, state in record.STATES.items()}
    columns = sqlite.Row(row, numbers[job.state], job.version, record.WAIT_NUMBERS[job.waiting_for], job.due_at)
    assert sqlite.unpack(columns, sqlite.pack(job, row, middle), lane) == job


@pytest.mark.parametrize("name", GOLDEN)
def test_a_row_of_postgresql_keeps_a_job(name: str) -> None:
    job, _ = GOLDEN[name]
    lane = lane_of(job)
    numbers = {state: number for number, state in record.STATES.items()}
    wait = record.WAIT_NUMBERS[job.waiting_for]
    due = postgres.due_of(job)
    columns = postgres.StoredJob(job.id, numbers[job.state], job.version, wait, due, lane.id, postgres.pack(job))
    assert postgres.unpack(columns, lane) == job


@pytest.mark.parametrize("name", GOLDEN)
def test_a_record_of_redis_keeps_a_job(name: str) -> None:
    job, _ = GOLDEN[name]
    raw = id_to_bytes(job.id)
    assert redis.unpack(raw, redis.pack(job, raw)) == job


def test_the_prefixes_of_records_are_those_of_the_first_release() -> None:
    row, middle = sqlite.split_id(FRESH.id)
    raw = id_to_bytes(FRESH.id)
    assert (row, sqlite.pack(FRESH, row, middle)[:8].hex()) == (764047838413064929, "7abc8def2f6e11c4")
    lane = "6d61696c0061636d65006d61696c2e73656e6400736d7470000035"
    assert redis.pack(FRESH, raw)[14:44].hex() == f"001b{lane}94"
    cause = f"000003{b'451'.hex()}0008{b'5be1c0de'.hex()}"
    assert redis.pack(RETRIED, raw).hex().startswith(f"00000002000242799cd531c00000801b{lane}{cause}95")
