"""Leases: one row for each claim, with the jobs that it took, their lanes and their versions."""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct

from reprieve.core.ids import id_to_bytes
from reprieve.stores.postgres.crew import Tx
from reprieve.stores.postgres.rows import array_of
from reprieve.stores.postgres.statements import statements

_JOB = Struct(">16sqq")
"""A job's id, lane and version: all are as long as each other, so that the database finds them as well."""


def unpack_lease(packed: bytes) -> dict[bytes, tuple[int, int]]:
    """Return the lane and the version of each job of a lease."""
    return {job: (lane, version) for job, lane, version in _JOB.iter_unpack(packed)}


def pack_lease(jobs: Mapping[bytes, tuple[int, int]]) -> bytes:
    """Pack what a claim took."""
    return b"".join(_JOB.pack(job, lane, version) for job, (lane, version) in jobs.items())


class Leases:
    """The leases of some sessions, from which jobs are taken."""

    def __init__(self, tx: Tx) -> None:
        """Begin with nothing."""
        self._tx = tx
        self._rows: dict[tuple[int, int], dict[bytes, tuple[int, int]]] = {}
        self._changed: set[tuple[int, int]] = set()
        self._of_session: dict[str, list[tuple[int, int]]] = {}

    def add(self, name: str, session: int, leases: Iterable[tuple[int, bytes]]) -> None:
        """Take the leases of a session that were read already, by their numbers."""
        mine = self._of_session.setdefault(name, [])
        for number, jobs in leases:
            self._rows[session, number] = unpack_lease(jobs)
            mine.append((session, number))

    def load(self, names: Iterable[str]) -> None:
        """Read the leases of more sessions."""
        missing = [name for name in names if name not in self._of_session]
        if missing:
            for name, session, number, jobs in self._tx.all(statements("leases")["of"], {"names": missing}):
                self.add(name, session, [(number, jobs)])

    def end(self, session: str, job_id: str, version: int) -> int | None:
        """Take a job out of its session's lease; answer its lane, or None when the session does not hold it so."""
        job = id_to_bytes(job_id)
        for lease in self._of_session.get(session, ()):
            held = self._rows[lease].get(job)
            if held is not None and held[1] == version:
                del self._rows[lease][job]
                self._changed.add(lease)
                return held[0]
        return None

    def write(self) -> list[tuple[int, int]]:
        """Write what is left of them; answer those of which nothing is, for somebody to delete."""
        gone = [lease for lease in self._changed if not self._rows[lease]]
        for session, number in self._changed.difference(gone):
            row = {"jobs": pack_lease(self._rows[session, number]), "session": session, "number": number}
            self._tx.execute(statements("leases")["update"], row)
        return gone

    def first(self, session: int, number: int) -> int:
        """Return the smallest number of a session's leases that hold something, or that of the next."""
        held = (other for owner, other in self._rows if owner == session and self._rows[owner, other])
        return min(held, default=number)

    def delete(self, gone: Sequence[tuple[int, int]]) -> None:
        """Delete leases."""
        if gone:
            numbers = {
                "sessions": array_of(session for session, _ in gone),
                "numbers": array_of(number for _, number in gone),
            }
            self._tx.execute(statements("leases")["delete"], numbers)
