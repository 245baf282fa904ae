"""Run the demo on a screen, in a temporary folder."""

import tempfile
from pathlib import Path

from rich.console import Console

from reprieve.demo.screen import Screen
from reprieve.demo.story import Story
from reprieve.worker.loop import run


def perform(console: Console, *, jobs: int, seed: int) -> bool:
    """Run the demo; return whether every job ended as expected."""
    screen = Screen(console)
    with tempfile.TemporaryDirectory(prefix="reprieve-demo-") as folder:
        story = Story(Path(folder), jobs=jobs, seed=seed, tell=screen.tell)
        with screen.live():
            ending = run(story.play(screen.show))
    screen.close(ending)
    return ending.is_good
