"""Leases: a row for each claim, with the jobs that it took, their lanes and their versions."""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct

from reprieve.core.ids import id_to_bytes
from reprieve.stores.postgres.pool import Tx
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements

_JOB = Struct(">16sqq")
"""A job's id, lane and version. All have the same length, so that SQL can find an id among them."""


def unpack_lease(packed: bytes) -> dict[bytes, tuple[int, int]]:
    """Return the lane and the version of each job of a lease."""
    return {job: (lane, version) for job, lane, version in _JOB.iter_unpack(packed)}


def pack_lease(jobs: Mapping[bytes, tuple[int, int]]) -> bytes:
    """Return the jobs that a claim took as the bytes of a lease."""
    return b"".join(_JOB.pack(job, lane, version) for job, (lane, version) in jobs.items())


class Leases:
    """The leases of some sessions, out of which jobs are taken as they end."""

    def __init__(self, tx: Tx) -> None:
        """Begin with no lease."""
        self._tx = tx
        self._rows: dict[tuple[int, int], dict[bytes, tuple[int, int]]] = {}
        self._changed: set[tuple[int, int]] = set()
        self._of_session: dict[str, list[tuple[int, int]]] = {}

    def add(self, name: str, session: int, leases: Iterable[tuple[int, bytes]]) -> None:
        """Add leases of a session that were read already, by the numbers of their claims."""
        mine = self._of_session.setdefault(name, [])
        for number, jobs in leases:
            self._rows[session, number] = unpack_lease(jobs)
            mine.append((session, number))

    def load(self, names: Iterable[str]) -> None:
        """Read the leases of sessions that were not added."""
        missing = [name for name in names if name not in self._of_session]
        if missing:
            for name, session, number, jobs in self._tx.all(statements("leases")["of_sessions"], {"names": missing}):
                self.add(name, session, [(number, jobs)])

    def end(self, session: str, job_id: str, version: int) -> int | None:
        """Take a job out of its session's lease; return its lane, or None if the session does not hold that version."""
        job = id_to_bytes(job_id)
        for lease in self._of_session.get(session, ()):
            held = self._rows[lease].get(job)
            if held is not None and held[1] == version:
                del self._rows[lease][job]
                self._changed.add(lease)
                return held[0]
        return None

    def write(self) -> list[tuple[int, int]]:
        """Write the leases that were shortened; return the empty ones, which the caller deletes."""
        empty = [lease for lease in self._changed if not self._rows[lease]]
        for session, number in self._changed.difference(empty):
            row = {"jobs": pack_lease(self._rows[session, number]), "session": session, "claim": number}
            self._tx.execute(statements("leases")["update"], row)
        return empty

    def first(self, session: int, number: int) -> int:
        """Return the smallest claim number of a session's leases that hold jobs; `number` when none does."""
        held = (other for owner, other in self._rows if owner == session and self._rows[owner, other])
        return min(held, default=number)

    def delete(self, leases: Sequence[tuple[int, int]]) -> None:
        """Delete leases, by session and claim number."""
        if leases:
            numbers = {
                "sessions": array_of(session for session, _ in leases),
                "claims": array_of(number for _, number in leases),
            }
            self._tx.execute(statements("leases")["delete"], numbers)
