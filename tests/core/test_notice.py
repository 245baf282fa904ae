"""Notices: what they keep of who did it, and why; and which jobs tell all that happens to them."""

from reprieve.core.headers import Headers
from reprieve.core.job import Job
from reprieve.core.notice import Notice
from reprieve.core.text import MAX_PERSON_CHARS


def test_who_and_why_are_kept_as_one_printable_line_each() -> None:
    notice = Notice(
        at=0, name="GateHeld", kind="dependency", subject="ses", by="ana\n" * 200, reason="down\r\nsince noon"
    )
    assert notice.reason == "down since noon"
    assert notice.by.isprintable()
    assert len(notice.by) <= MAX_PERSON_CHARS


def test_only_a_job_whose_headers_say_so_tells_all() -> None:
    job = Job(id="j", task="send", created_at=0, due_at=0)
    asking = Job(id="j", task="send", created_at=0, due_at=0, headers=Headers(tells_all=True))
    assert [job.tells_all, asking.tells_all] == [False, True]
