"""Jobs of tasks that a worker does not know: they wait for one that does, and die when there is none for long."""

from reprieve import Job
from reprieve.stores.protocol import Session
from tests.flows import older, workload
from tests.flows.fleet import Stage, Tree, calls, flow
from tests.flows.workload import add, nap, stay_apart

ADD = add.name


def hire_old(stage: Stage, unknown_after: str = "1h") -> Tree:
    """Start a worker of the older release."""
    environ = {"REPRIEVE_UNKNOWN_AFTER": unknown_after}
    return stage.hire(target="tests.flows.older:app", tasks=older.TASKS, environ=environ)


def hire_new(stage: Stage, queue: str = "default") -> Tree:
    """Start a worker that knows every task."""
    tasks = tuple(declaration.name for declaration in workload.app.registry)
    return stage.hire(tasks=tasks, queues=(queue,))


def uncharged(jobs: list[Job]) -> list[tuple[int, int, int]]:
    return [(job.charged, job.spared, job.crashes) for job in jobs]


async def known(stage: Stage) -> list[Session]:
    """Wait until a session knows the new task; return those that do."""

    async def sessions() -> list[Session]:
        return [one for one in await stage.app.store.sessions(stage.app.clock.now()) if ADD in one.tasks]

    return await stage.until(sessions, "a session knows the new task")


async def warned(stage: Stage, tree: Tree) -> None:
    await stage.until(lambda: tree.said("unknown task"), "the old worker has warned")


@flow
async def test_a_rolling_deploy_runs_every_job_of_a_new_task(stage: Stage) -> None:
    old = hire_old(stage)
    jobs = await stage.enqueue(*calls(add, 20, 1, 2))
    apart = await stage.enqueue_one(stay_apart.call(stage.mark("end")))
    await warned(stage, old)
    stage.release("end")
    hire_new(stage)
    jobs += await stage.enqueue(*calls(add, 20, 3, 4))
    after = await stage.succeeded(*jobs, apart)
    assert uncharged(after) == [(0, 0, 0)] * 41
    (warning,) = (entry for entry in old.said("unknown task") if entry["task"] == ADD)
    assert (warning["queue"], warning["knownBy"], warning["level"]) == ("default", [], "warning")
    assert "deploy the code that has it" in warning["reason"]
    assert old.status() is None


@flow
async def test_the_warning_names_the_workers_that_know_the_task(stage: Stage) -> None:
    # It knows the task, but serves another queue.
    hire_new(stage, queue="other")
    (session,) = await known(stage)
    old = hire_old(stage, unknown_after="1s")
    job = await stage.enqueue_one(add.call(1, 2))
    await warned(stage, old)
    (warning,) = old.said("unknown task")
    assert [name.partition(" ")[0] for name in warning["knownBy"]] == [session.id]
    # While it lives, the job waits.
    await stage.let_pass(2.0)
    assert ((await stage.job(job)).state, len(old.said("unknown task"))) == ("waiting", 1)


@flow
async def test_jobs_that_no_worker_knows_wait_and_then_die_while_others_run(stage: Stage) -> None:
    old = hire_old(stage, unknown_after="3s")
    unknown = await stage.enqueue(*calls(add, 10, 1, 2))
    elsewhere = await stage.enqueue_one(add.using(queue="not-served").call(1, 2))
    await warned(stage, old)
    others = await stage.succeeded(*await stage.enqueue(*calls(nap, 50)))
    assert [job.attempt for job in others] == [1] * 50
    assert [job.state for job in await stage.jobs(unknown)] == ["waiting"] * 10

    dead = await stage.ended(*unknown)
    assert [(job.state, job.death) for job in dead] == [("dead", "unknown_task")] * 10
    assert uncharged(dead) == [(0, 0, 0)] * 10
    reasons = {job.cause.reason for job in dead if job.cause}
    assert reasons == {f"no live worker has known a task named {ADD!r} for 3s; deploy the code that has it, then retry"}
    assert (await stage.job(elsewhere)).state == "waiting", "no worker serves its queue"

    hire_new(stage)
    await known(stage)
    await stage.app.job(unknown[0]).aretry(by="ana", reason="the code is deployed")
    await stage.succeeded(unknown[0])
    assert [job.state for job in await stage.jobs(unknown[1:])] == ["dead"] * 9
