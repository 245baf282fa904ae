"""The app of an older release: some tasks of the workload are not in it yet."""

from reprieve import Policy, Reprieve
from reprieve.backoff import fixed
from tests.flows import workload

NEW = ("tests.flows.workload.add", "tests.flows.workload.stay_apart")

app = Reprieve(policy=Policy(backoff=fixed("200ms")))
app.middleware.append(workload.note)
for declaration in workload.app.registry:
    if declaration.name not in NEW:
        app.registry.add(declaration)
TASKS = tuple(declaration.name for declaration in app.registry)
