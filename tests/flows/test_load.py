"""Load: a flood of one tenant does not drown the others, and an outage costs few calls and no job."""

import asyncio
import socket
from contextlib import closing

from reprieve import clock
from reprieve.clock import ticks
from reprieve.stores.protocol import Filter
from tests.flows.fleet import PATIENCE, Stage, calls, flow
from tests.flows.workload import Line, nap, relay

FLOOD = 5_000


@flow
async def test_a_flood_does_not_drown_a_small_tenant(stage: Stage) -> None:
    # Each takes a moment, so that the flood lasts until the other tenant is there, however busy the machine is.
    await stage.enqueue(*calls(nap.using(tenant="flood"), FLOOD, 0.01))
    stage.hire(slots=20)
    await stage.until(lambda: len(stage.began()) > FLOOD // 20, "the flood has begun")
    small = await stage.enqueue(*calls(nap.using(tenant="small"), 10))
    arrived_at = clock.now()
    await stage.succeeded(*small)
    # What is leased together begins in the order in which it was leased.
    leased = sorted(stage.began(), key=lambda line: line.leased_at)
    since_at = min(arrived_at, *(line.leased_at for line in leased if line.tenant == "small"))
    tenth = max(place for place, line in enumerate(leased) if line.tenant == "small")
    before = [line for line in leased[:tenth] if line.tenant == "flood" and line.leased_at >= since_at]
    print(f"flood jobs leased before the tenth of the small tenant: {len(before)}")  # noqa: T201 - a figure
    assert len(before) <= 33
    last_at = leased[tenth].leased_at
    await stage.until(lambda: stage.began()[-1].leased_at > last_at, "the flood goes on, so it was not over before")


@flow
async def test_an_outage_costs_few_calls_and_no_job(stage: Stage) -> None:
    jobs, outage = (5_000, 20.0) if stage.terms.is_default else (3_000, 4.0)
    with closing(socket.socket()) as door:
        # A bound socket that does not listen refuses every call.
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
        await stage.enqueue(*calls(relay, jobs, port))
        stage.hire(processes=2, slots=20, queues=("relay",))
        first = (await stage.until(lambda: seen(stage), "a first call"))[0]
        await stage.until(
            lambda: ticks() > first.at + outage, "the outage has lasted for a while", within=outage + PATIENCE
        )
        made = len(seen(stage))
        back = ticks()
        async with await asyncio.start_server(lambda _, writer: writer.close(), sock=door):
            await stage.until(lambda: len(done(stage)) == jobs, "all is done", within=2 * PATIENCE, every=0.1)
    drained = max(line.at for line in stage.finished()) - back
    stage.figure(f"{made / jobs:.3f} calls per job in an outage of {outage:g} s, drained in", drained, at_most=30.0)
    assert made <= 0.1 * jobs

    async def all_succeeded() -> bool:
        return set((await stage.app.store.tally("status", Filter(queues=("relay",)), clock.now())).counts) == {
            "succeeded"
        }

    await stage.until(all_succeeded, "all has succeeded")


def seen(stage: Stage) -> list[Line]:
    return [line for line in stage.lines() if line.what == "saw"]


def done(stage: Stage) -> set[str]:
    return {line.job for line in stage.finished() if not line.how}
