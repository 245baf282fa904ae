"""Every flow on every store."""

import pytest

from tests.flows.ground import Grounds, in_a_file, in_a_schema, in_a_server


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def grounds(request: pytest.FixtureRequest) -> Grounds:
    """Return where the stages of this test stand."""
    if request.param == "sqlite":
        return in_a_file
    if request.param == "redis":
        return in_a_server
    server: str = request.getfixturevalue("postgres_url")
    return lambda _: in_a_schema(server)
