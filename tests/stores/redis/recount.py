"""The recount: everything that the Redis store keeps twice, counted again from what it is kept of."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from struct import pack, unpack_from
from typing import Any

import msgspec
import redis

from reprieve.stores.record import CANCELLED, DEAD, WAITING
from reprieve.stores.redis.records import EXPIRED, GIVEN_UP

_ROUND = 1_000_000
_NONE = b"\0" * 16
_decode = msgspec.msgpack.Decoder(list[Any]).decode


class Books:
    """A partition as it lies in the server."""

    def __init__(self, client: Any, tag: str) -> None:  # noqa: ANN401 - a client of a server or of a Cluster
        """Read everything."""
        self._client = client
        self._tag = tag.encode()
        self.keys = {key[len(self._tag) :]: client.type(key) for key in client.scan_iter(self._pattern(), count=1_000)}
        self.records: dict[bytes, bytes] = self.hash(b":jobs")
        self.lanes = {name: _decode(data) for name, data in self.hash(b":lanes").items()}
        self.tenants = {name: _decode(data) for name, data in self.hash(b":tenants").items()}
        self.limiters = {name: _decode(data) for name, data in self.hash(b":limiters").items()}
        self.queues = {name: _decode(data) for name, data in self.hash(b":queues").items()}

    def _pattern(self) -> bytes:
        return self._tag + b":*"

    def hash(self, suffix: bytes) -> dict[bytes, bytes]:
        return dict(self._client.hgetall(self._tag + suffix))

    def zset(self, suffix: bytes) -> dict[bytes, float]:
        return dict(self._client.zrange(self._tag + suffix, 0, -1, withscores=True))

    def members(self, suffix: bytes) -> set[bytes]:
        return set(self._client.smembers(self._tag + suffix))

    def list(self, suffix: bytes) -> list[bytes]:
        return list(self._client.lrange(self._tag + suffix, 0, -1))

    def named(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return the keys that begin so, and the rest of their names."""
        for key in self.keys:
            if key.startswith(prefix):
                yield key, key[len(prefix) :]


def complaints(client: redis.Redis | redis.RedisCluster, tag: str) -> list[str]:
    """Return what is wrong with a partition."""
    books = Books(client, tag)
    return [
        *_places(books),
        *_ended(books),
        *_tried(books),
        *_causes(books),
        *_running(books),
        *_candidates(books),
        *_counts(books),
        *_names(books),
        *_blocked(books),
        *_sessions(books),
    ]


def _names(books: Books) -> Iterator[str]:
    """Compare the counters of names with those of lanes, and the lists of lanes with the lanes."""
    for position, subject in ((0, b"queue"), (2, b"task"), (3, b"dependency")):
        sums: Counter[bytes] = Counter()
        for lane, state in books.lanes.items():
            for index, count in enumerate(state[:6], 1):
                sums[lane.split(b"\0")[position] + b"\0%d" % index] += count
        kept = {field: int(count) for field, count in books.hash(b":counts:" + subject).items()}
        if kept != {field: count for field, count in sums.items() if count}:
            yield f"the counters of each {subject.decode()} are {kept}, those of its lanes {dict(sums)}"
    if set(books.zset(b":lane_names")) != set(books.lanes):
        yield "the list of lanes has others than those that there are"
    if set(books.zset(b":lane_names_by_tenant")) != {lane.split(b"\0")[1] + b"\0" + lane for lane in books.lanes}:
        yield "the list of lanes by tenant has others than those that there are"
    wanted = {
        letter + lane.split(b"\0")[position]
        for lane in books.lanes
        for letter, position in ((b"k", 2), (b"d", 3), (b"g", 4))
        if lane.split(b"\0")[position]
    }
    if not wanted <= set(books.zset(b":names")):
        yield f"names are {set(books.zset(b':names'))}, and lanes have {wanted}"
    for fate in (b"d", b"l"):
        if set(books.zset(b":codes:" + fate)) != set(books.zset(b":causes:" + fate + b"c")):
            yield f"the codes of {fate.decode()} are not those that are counted"


def _lane_in(record: bytes) -> bytes:
    start = 22 if record[4] in (EXPIRED, GIVEN_UP) else 14
    (length,) = unpack_from(">H", record, start)
    return record[start + 2 : start + 2 + length % 0x8000]


def _cause_in(record: bytes) -> tuple[bytes, bytes, bytes]:
    """Return the kind of death, the code and the fingerprint of a dead job."""
    start = 22 if record[4] == EXPIRED else 14
    (length,) = unpack_from(">H", record, start)
    if length < 0x8000:
        return b"expired", b"expired", b""
    start += 2 + length % 0x8000 + 8 * record[start + 1 + length % 0x8000 :][:1].isalpha()
    texts = []
    for form, size in ((">B", 1), (">H", 2), (">H", 2)):
        (length,) = unpack_from(form, record, start)
        texts.append(record[start + size : start + size + length])
        start += size + length
    return b"expired" if record[4] == EXPIRED else texts[0], texts[1], texts[2]


def _index_names(record: bytes) -> Iterator[bytes]:
    """Return the lists of the index of ended jobs that a job belongs to, besides that of its queue."""
    _, tenant, task, dependency, _, _ = _lane_in(record).split(b"\0")
    if record[4] in (CANCELLED, GIVEN_UP):
        yield from (b":cancelled_by:a", b":cancelled_by:t" + tenant)
        return
    death, code, fingerprint = _cause_in(record)
    names = [b"a", b"t" + tenant, b"k" + task, b"d" + dependency, b"x" + death]
    names += [b"c" + code] * bool(code)
    names += [b"f" + fingerprint, b"p" + tenant + b"\0" + fingerprint] * bool(fingerprint)
    yield from (b":dead_by:" + name for name in names)


def _ended(books: Books) -> Iterator[str]:
    """The index of ended jobs has every dead or cancelled job under all of its names, and nothing else."""
    wanted: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for raw, record in books.records.items():
        if record[4] != WAITING:
            for name in _index_names(record):
                wanted[name].add(raw)
    found = {
        key: set(books.zset(key)) for prefix in (b":dead_by:", b":cancelled_by:") for key, _ in books.named(prefix)
    }
    if found != dict(wanted):
        yield f"the index of ended jobs has {found}, and should have {dict(wanted)}"


def _tried(books: Books) -> Iterator[str]:
    """The index of tried jobs has every job that is due later and waits for a retry, a gate or a budget."""
    wanted: defaultdict[bytes, dict[bytes, float]] = defaultdict(dict)
    for key, name in books.named(b":delayed:"):
        delay = name.rpartition(b"\0")[2]
        for raw, due in books.zset(key).items() if delay != b"1" else ():
            record = books.records[raw]
            _, tenant, task, dependency, _, _ = _lane_in(record).split(b"\0")
            _, code, fingerprint = _cause_in(record) if record[14] >= 0x80 else (b"", b"", b"")
            names = [b"t" + tenant, b"k" + task, b"d" + dependency]
            names += [b"c" + code] * bool(code) + [b"f" + fingerprint] * bool(fingerprint)
            for one in names:
                wanted[b":delayed_by:" + delay + one][raw] = due
    found = {key: books.zset(key) for key, _ in books.named(b":delayed_by:")}
    if found != dict(wanted):
        yield f"the index of tried jobs has {found}, and should have {dict(wanted)}"


def _entries(books: Books) -> Iterator[tuple[bytes, bytes]]:
    """Return the entries of ready jobs, with their lanes."""
    for key, lane in books.named(b":fresh:"):
        yield from ((lane, entry) for entry in books.list(key))
    for key, lane in books.named(b":requeued:"):
        yield from ((lane, entry) for entry in books.zset(key))


def _standing(books: Books) -> tuple[defaultdict[bytes, list[str]], Counter[bytes]]:
    """Return where every id stands, and the leftovers in lanes."""
    found: defaultdict[bytes, list[str]] = defaultdict(list)
    leftovers: Counter[bytes] = Counter()
    for lane, entry in _entries(books):
        record = books.records.get(entry[:16], _NONE)
        is_valid = record[4] == WAITING and record[2:4] == entry[16:] and _lane_in(record) == lane
        if is_valid and entry[:16] in books.records:
            found[entry[:16]].append("ready")
        else:
            leftovers[entry[:16]] += 1
    for key, _ in books.named(b":delayed:"):
        for raw in books.zset(key):
            found[raw].append(("scheduled", "scheduled", "retrying", "parked", "parked")[books.records[raw][5]])
    for prefix, word in ((b":dead:", "dead"), (b":cancelled:", "cancelled"), (b":succeeded:", "succeeded")):
        for key, _ in books.named(prefix):
            for raw in books.zset(key):
                found[raw].append(word)
    for raw in itertools.chain(*(books.hash(key) for key, _ in books.named(b":leases:"))):
        found[raw].append("running")
    return found, leftovers


def _places(books: Books) -> Iterator[str]:
    """Every job stands in exactly one place, and the lanes count them right."""
    found, leftovers = _standing(books)
    counted: defaultdict[bytes, Counter[str]] = defaultdict(Counter)
    states = {DEAD: {"dead"}, EXPIRED: {"dead"}, CANCELLED: {"cancelled"}, GIVEN_UP: {"cancelled"}}
    alive = {"ready", "scheduled", "retrying", "parked", "running", "succeeded"}
    for raw, record in books.records.items():
        places = found.pop(raw, [])
        if len(places) != 1 or places[0] not in states.get(record[4], alive):
            yield f"job {raw.hex()} of state {record[4]} stands in {places}"
        counted[_lane_in(record)].update(places)
    yield from (f"{raw.hex()} stands in {places} and has no record" for raw, places in found.items())
    for name in books.lanes.keys() | counted.keys():
        words = ("ready", "scheduled", "retrying", "parked", "dead", "cancelled")
        kept = books.lanes.get(name, [0] * 6)[:6]
        wanted = [counted[name][word] for word in words]
        if kept != wanted:
            yield f"lane {name!r} counts {kept}, and there are {wanted}"
    noted = {raw: int(count) for raw, count in books.hash(b":leftovers").items()}
    if noted != dict(leftovers):
        yield f"leftovers are {dict(leftovers)}, and noted are {noted}"
    by_lane = {name: int(count) for name, count in books.hash(b":leftover_lanes").items()}
    if sum(by_lane.values()) != sum(noted.values()) or not by_lane.keys() <= {
        name for _, name in books.named(b":fresh:")
    }:
        yield f"leftovers are noted as {noted}, and by lane as {by_lane}"


def _causes(books: Books) -> Iterator[str]:
    """The lists of causes have the counts and the last times of the index of ended jobs."""
    wanted: defaultdict[bytes, dict[bytes, tuple[int, float]]] = defaultdict(dict)
    for key, group in books.named(b":dead_by:"):
        jobs = books.zset(key)
        fact, (letter, name) = (len(jobs), max(jobs.values())), (group[:1], group[1:])
        if letter in b"tkxcf":
            wanted[letter][name] = fact
        elif letter == b"p":
            tenant, _, fingerprint = name.partition(b"\0")
            wanted[b"p" + tenant][fingerprint] = wanted[b"h" + fingerprint][tenant] = fact
    found: dict[bytes, dict[bytes, tuple[int, float]]] = {}
    for key, name in books.named(b":causes:d"):
        last = books.zset(b":causes_last:d" + name)
        found[name] = {member: (int(count), last.get(member, 0)) for member, count in books.zset(key).items()}
    if found != dict(wanted):
        yield f"causes are {found}, and should be {dict(wanted)}"


def _running(books: Books) -> Iterator[str]:
    tenants: Counter[bytes] = Counter()
    limiters: Counter[bytes] = Counter()
    meta = books.hash(b":meta")
    for key, _ in books.named(b":leases:"):
        for lease in books.hash(key).values():
            queue, tenant, task, dependency, group, _ = lease[64:].split(b"\0")
            tenants[queue + b"\0" + tenant] += 1
            limiters.update((b"q" + queue, b"k" + task))
            limiters.update(letter + name for letter, name in ((b"d", dependency), (b"g", group)) if name)
            if dependency and b"has_pairs" in meta:
                limiters[b"p" + tenant + b"\0" + dependency] += 1
    for name in books.tenants.keys() | tenants.keys():
        if books.tenants.get(name, [1, 0])[1] != tenants[name]:
            yield f"tenant {name!r} counts {books.tenants.get(name)}, and {tenants[name]} run"
    for name in books.limiters.keys() | limiters.keys():
        if books.limiters.get(name, [0])[0] != limiters[name]:
            yield f"limiter {name!r} counts {books.limiters.get(name)}, and {limiters[name]} run"


def _candidates(books: Books) -> Iterator[str]:
    """Tenants with open lanes are candidates, where their numbers say, and list them."""
    opened: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for name, lane in books.lanes.items():
        if lane[0] > 0 and not (len(lane) > 7 and lane[7]):
            opened[b"\0".join(name.split(b"\0")[:2])].add(name)
    candidates: defaultdict[bytes, set[bytes]] = defaultdict(set)
    weights: defaultdict[bytes, list[int]] = defaultdict(lambda: [0, 0])
    for key, tenant in books.tenants.items():
        weight, running, finish, _, _, count, only_lane, blocked = tenant[:8]
        queue, _, name = key.partition(b"\0")
        listed = {only_lane.encode()} if only_lane else set(books.zset(b":open_lanes:" + key))
        if listed != opened[key] or count != len(opened[key]):
            yield f"tenant {key!r} lists {count}, {listed}, and open are {opened[key]}"
        if count and not blocked:
            candidates[queue].add(_member(running, weight, finish) + name)
            weights[queue][0] += round(weight * 1_000)
        elif running:
            weights[queue][1] += round(weight * 1_000)
    for queue, state in books.queues.items():
        found = set(books.zset(b":candidates:" + queue))
        if found != candidates[queue]:
            yield f"the candidates of {queue!r} are {found}, and should be {candidates[queue]}"
        if state[6:8] != weights[queue]:
            yield f"queue {queue!r} weighs {state[6:8]}, and its tenants {weights[queue]}"


def _counts(books: Books) -> Iterator[str]:
    """Tenants count their lanes, and queues their tenants."""
    lanes = Counter(b"\0".join(name.split(b"\0")[:2]) for name in books.lanes)
    for key in books.tenants.keys() | lanes.keys():
        if books.tenants.get(key, [0] * 9)[8] != lanes[key]:
            yield f"tenant {key!r} is {books.tenants.get(key)}, and has {lanes[key]} lanes"
    tenants = Counter(key.partition(b"\0")[0] for key in books.tenants)
    for queue in books.queues.keys() | tenants.keys():
        if books.queues.get(queue, [0] * 10)[9] != tenants[queue]:
            yield f"queue {queue!r} is {books.queues.get(queue)}, and has {tenants[queue]} tenants"


def _member(running: int, weight: float, finish: float) -> bytes:
    return pack(">dd", running * _ROUND // weight, finish)


def _blocked(books: Books) -> Iterator[str]:
    """A blocked lane is listed under its limiter. Limiters that block, and blocked tenants, are to be checked again."""
    wanted: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for name, lane in books.lanes.items():
        if len(lane) > 7 and lane[7]:
            wanted[lane[7].encode() + b"\0" + b"\0".join(name.split(b"\0")[:2])].add(name)
    found = {name: books.members(key) for key, name in books.named(b":blocked_lanes:")}
    if found != dict(wanted):
        yield f"blocked are {dict(wanted)}, and listed are {found}"
    waiting = {name: at for name, at in books.zset(b":rechecks").items() if not name.startswith(b"s")}
    blocked = {b"t" + key for key, tenant in books.tenants.items() if tenant[7]}
    blocked |= {name for name, limiter in books.limiters.items() if limiter[1]}
    if waiting.keys() != blocked:
        yield f"blocked are {blocked}, and to be checked again are {waiting}"
    for name, limiter in books.limiters.items():
        tenants = set(books.zset(b":blocked_tenants:" + name))
        if limiter[1] != len(tenants):
            yield f"limiter {name!r} counts {limiter[1]} tenants, and {tenants} wait"
        running, _, permits, most, count = (*limiter, None, None, None, None, None)[:5]
        limits = [limit for limit in (permits, most) if limit is not None and limit is not False]
        has_room = all(running < limit for limit in limits)
        if tenants and has_room and name not in waiting:
            yield f"limiter {name!r} has room for {tenants}, and no recheck (rate {count})"


def _sessions(books: Books) -> Iterator[str]:
    sessions = {name: msgspec.msgpack.decode(_text_free(data)) for name, data in books.hash(b":sessions").items()}
    living, dead = set(books.zset(b":live_sessions")), set(books.zset(b":dead_sessions"))
    if living & dead or living | dead != sessions.keys():
        yield f"sessions are {sessions.keys()}, living {living}, dead {dead}"
    capacity: Counter[str] = Counter()
    for _, slots, prefetch, queues in (state for name, state in sessions.items() if name in living):
        for queue in queues or [""]:
            capacity[f"s{queue}"] += slots
            capacity[f"p{queue}"] += prefetch
    kept = {field.decode(): int(count) for field, count in books.hash(b":capacity").items()}
    if +capacity != kept:
        yield f"live sessions have {+capacity}, and {kept} is counted"


def _text_free(data: bytes) -> bytes:
    """Cut a packed session to its numbers and queues: scripts keep ids in it that are no text."""
    end = 1
    for _ in range(3):
        end += {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}.get(data[end], 1)
    names = data[end] & 0x0F
    end += 1
    for _ in range(names):
        end += 1 + (data[end] & 0x1F)
    return b"\x94" + data[1:end]
