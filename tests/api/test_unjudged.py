"""An attempt whose policy breaks is still settled."""

from reprieve import Policy, Reprieve
from reprieve.core.failure import Failure
from reprieve.core.verdict import Verdict
from reprieve.testing import FakeClock, drain


class Broken:
    """A table of rules with a bug."""

    def judge(self, failure: Failure) -> Verdict | None:
        message = f"no rule for {failure.message}"
        raise LookupError(message)


def test_job_whose_rules_break_is_retried_and_not_left_running() -> None:
    app = Reprieve("sqlite://:memory:", clock=(clock := FakeClock()))

    @app.task(policy=Policy(max_attempts=2, rules=[Broken()]))
    async def send() -> None:
        message = "down"
        raise ConnectionError(message)

    with app:
        handle = send.enqueue()
        drain(app, clock)
        job = handle.fetch()
        assert job.state == "dead"
        assert job.cause is not None
