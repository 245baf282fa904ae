"""The registry: every task by its name, and the policy that is in force for a job."""

from collections.abc import Iterator

from reprieve.config import Settings
from reprieve.core import presets
from reprieve.core.job import Job
from reprieve.core.policy import Override, Policy, amend, resolve
from reprieve.core.rule import Rule
from reprieve.declaration import Declaration, named_policy
from reprieve.errors import DuplicateTask, UnknownTask


class Registry:
    """The tasks of one app."""

    def __init__(self, settings: Settings, policy: Policy | str | None = None) -> None:
        """Take the operator's settings and the app's default policy, which may be named."""
        self._settings = settings
        self.named_policies = {name: presets.named(name, settings.profile) for name in presets.ALL} | settings.policies
        """The policies that tasks and apps may name: the presets, and those in the settings."""
        default = named_policy(policy, "of the app", self.named_policies)
        self._default = default or presets.named(settings.policy, settings.profile)
        self._tasks: dict[str, Declaration] = {}
        self._policies: dict[str, Policy] = {}

    def __iter__(self) -> Iterator[Declaration]:
        """Iterate over the tasks."""
        return iter(self._tasks.values())

    def add(self, declaration: Declaration) -> None:
        """Register a task.

        The same function may be registered again, when its module is loaded twice; another under its name raises
        `DuplicateTask`.
        """
        known = self._tasks.get(declaration.name)
        if known is not None and _origin(known) != _origin(declaration):
            message = (
                f"two tasks are named {declaration.name!r}: {_origin(known)} and {_origin(declaration)}; "
                "give one of them another name"
            )
            raise DuplicateTask(message)
        self._tasks[declaration.name] = declaration
        self._policies.pop(declaration.name, None)

    def find(self, name: str) -> Declaration | None:
        """Return a task by its name; None if there is none."""
        return self._tasks.get(name)

    def get(self, name: str) -> Declaration:
        """Return a task by its name; raises `UnknownTask` with the names that there are."""
        if name not in self._tasks:
            known = ", ".join(sorted(self._tasks)) or "none"
            message = f"no task is named {name!r}; the tasks are: {known}"
            raise UnknownTask(message)
        return self._tasks[name]

    def queues(self) -> tuple[str, ...]:
        """Return every queue that a task names, in the order in which they were declared."""
        return tuple(dict.fromkeys(declaration.queue for declaration in self._tasks.values())) or ("default",)

    def policy_of(self, job: Job) -> Policy:
        """Return the policy that is in force for a job."""
        return self.policy_for(job.task, job.override)

    def policy_for(self, task: str, override: Override | None) -> Policy:
        """Return the policy in force. The job overrides the operator, the operator the task, and the task the app."""
        policy = self._policies.get(task)
        if policy is None:
            policy = self._resolve(task)
            if task in self._tasks:  # the names of others, which jobs bring, have no end
                self._policies[task] = policy
        return policy if override is None else resolve(policy, override)

    def _resolve(self, task: str) -> Policy:
        declaration = self._tasks.get(task)
        declared = None if declaration is None else declaration.policy
        policy = resolve(self._default, declared, self._settings.policies.get(task))
        rules = self._settings.rules
        if not rules:
            return policy
        # The operator's rules come first, and replace rules of the code that match the same failures.
        replaced = {rule.matchers for rule in rules}
        kept = [rule for rule in policy.rules if not (isinstance(rule, Rule) and rule.matchers in replaced)]
        return amend(policy, rules=(*rules, *kept))

    def timeout_of(self, task: str) -> float:
        """Return how many seconds an attempt may take."""
        declaration = self._tasks.get(task)
        if declaration is None or declaration.timeout is None:
            return self._settings.stuck_after
        return declaration.timeout


def _origin(declaration: Declaration) -> str:
    return f"{declaration.module}.{declaration.function.__qualname__}"
