"""A Redis server becomes unsafe while workers run: they wait, keep what they have to settle, and go on afterwards."""

from collections import Counter
from pathlib import Path

from tests.flows.fleet import Stage, Terms, calls, on_all_terms, play
from tests.flows.ground import in_keys
from tests.flows.workload import stay
from tests.servers import redis

JOBS = 8


@on_all_terms
async def test_nothing_that_has_finished_runs_again_when_the_server_becomes_unsafe(
    tmp_path: Path, terms: Terms
) -> None:
    with redis.own() as server, server.client() as admin:

        async def scene(stage: Stage) -> None:
            trees = [stage.hire(), stage.hire()]
            ids = await stage.enqueue(*calls(stay, JOBS, stage.mark("go on")))
            await stage.running(*ids)
            admin.config_set("maxmemory-policy", "allkeys-lru")
            await stage.until(lambda: all(tree.said("store unavailable") for tree in trees), "both workers wait")
            stage.release("go on")
            await stage.until(lambda: len(stage.finished(*ids)) == JOBS, "the jobs end")
            # Long enough for a session without a heartbeat to be declared dead.
            await stage.let_pass(terms.lease)
            await stage.let_the_dead_be_buried()
            assert {entry["errorCode"] for tree in trees for entry in tree.said("store unavailable")} == {
                "unsafe_store"
            }
            admin.config_set("maxmemory-policy", "noeviction")
            await stage.succeeded(*ids)
            assert Counter(line.job for line in stage.began()) == Counter(ids)
            assert [(tree.status(), tree.said("child died")) for tree in trees] == [(None, []), (None, [])]

        once = Terms(lease=terms.lease, heartbeat=terms.heartbeat, times=1)
        await play(scene, tmp_path, once, lambda _: in_keys(server))
