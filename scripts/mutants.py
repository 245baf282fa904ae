"""Mutate the deciding modules of the core, and fail when the tests notice too few of the mutants.

What is mutated, and which tests judge it, stands in pyproject.toml under tool.mutmut.
"""

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

FLOOR = 0.90
LIMIT = 30 * 60
"""Seconds for the whole run; each mutant has a limit of its own, from the time its tests need."""

MODULES: dict[str, tuple[str, ...]] = {
    "backoff": ("reprieve.core.backoff.",),
    "classify": ("reprieve.core.classify.", "reprieve.core.rules."),
    "decide": ("reprieve.core.decide.",),
    "gate": ("reprieve.core.gate.",),
}
# A mutant that breaks the collection of the tests is "interrupted" to mutmut: noticed, all the same.
NOTICED = {"killed", "timeout", "segfault", "check was interrupted by user"}


def main() -> int:
    """Run mutmut afresh, print the kill rates, and answer with the exit status."""
    mutmut = Path(sys.executable).with_name("mutmut")
    shutil.rmtree("mutants", ignore_errors=True)
    # For the processes that tests start: mutmut prepares only its own. The folder must exist from the
    # beginning, or mutmut's interpreter remembers that it does not.
    mutated = Path("mutants/src").absolute()
    mutated.mkdir(parents=True)
    environment = {**os.environ, "PYTHONPATH": str(mutated)}
    try:
        subprocess.run([mutmut, "run", "--max-children", "2"], check=True, timeout=LIMIT, env=environment)
    except subprocess.CalledProcessError:
        print("reprieve: mutmut could not run; its output above says why", file=sys.stderr)
        return 1
    except subprocess.TimeoutExpired:
        print(f"reprieve: the mutants took more than {LIMIT // 60} minutes", file=sys.stderr)
        return 1
    answer = subprocess.run([mutmut, "results", "--all", "true"], check=True, capture_output=True, text=True)
    return report(answer.stdout)


def report(results: str) -> int:
    """Print the kill rate of each module and of all, and answer 1 when one is under the floor."""
    verdicts = dict(line.strip().rsplit(": ", 1) for line in results.splitlines() if ": " in line)
    made, noticed = Counter[str](), Counter[str]()
    for mutant, verdict in sorted(verdicts.items()):
        module = next(module for module, prefixes in MODULES.items() if mutant.startswith(prefixes))
        made[module] += 1
        noticed[module] += verdict in NOTICED
        if verdict not in NOTICED:
            print(f"{verdict}: {mutant}")
    if made.total() > noticed.total():
        print("see one with: .venv-mutants/bin/mutmut show NAME")
    rows = [(module, noticed[module], made[module]) for module in MODULES]
    rows.append(("total", noticed.total(), made.total()))
    for name, killed, count in rows:
        print(f"{name:9} {killed:5} of {count:5} killed" + (f"  {killed / count:6.1%}" if count else ""))
    return int(any(killed < FLOOR * count or not count for _, killed, count in rows))


if __name__ == "__main__":
    sys.exit(main())
