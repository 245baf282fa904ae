"""How many messages a second one core fingerprints: `python -m benchmarks.fingerprint`."""

import statistics
import time
from pathlib import Path

from reprieve.core.fingerprint import fingerprint

CORPUS = Path(__file__).parents[1] / "tests" / "core" / "corpus"
SYMBOLS = str.maketrans("␤␉␛", "\n\t\x1b")
ROUNDS = 5


def corpus() -> list[tuple[str, str, str]]:
    """Read type, code and message of every labelled message."""
    lines = [line for path in sorted(CORPUS.glob("*.tsv")) for line in path.read_text("utf-8").splitlines()[1:]]
    rows = [line.split("\t") for line in lines]
    return [(kind, code, message.translate(SYMBOLS)) for _, _, kind, code, message in rows]


def measure(failures: list[tuple[str, str, str]]) -> float:
    """Messages per second of processor time, so that a busy machine does not count against us.

    Each message comes with a number of its own: one that was seen a moment ago would cost nothing.
    """
    numbered = [(kind, code, f"{message} {number}") for number, (kind, code, message) in enumerate(failures)]
    started = time.process_time()
    for kind, code, message in numbered:
        fingerprint(message, type=kind, code=code)
    return len(failures) / (time.process_time() - started)


def main() -> None:
    """Print the median of a few rounds over the corpus, ten times each."""
    failures = corpus()
    length = statistics.mean(len(message) for _, _, message in failures)
    speeds = [measure(failures * 10) for _ in range(ROUNDS)]
    print(f"fingerprint  {statistics.median(speeds):,.0f} messages/s")
    print(
        f"  median of {ROUNDS}, {min(speeds):,.0f} to {max(speeds):,.0f}; one core, {length:.0f} characters a message"
    )


if __name__ == "__main__":
    main()
