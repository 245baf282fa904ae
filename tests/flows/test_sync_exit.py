"""A script that enqueues and exits, without closing its app."""

import asyncio
import os
import sys
from pathlib import Path

from tests.flows.ground import Grounds

SCRIPT = """
from reprieve import Reprieve

app = Reprieve()


@app.task
def send(number: int) -> None: ...


for number in range(3):
    send.enqueue(number)
print(send.using(key="k").enqueue(4).fetch().state)
"""


async def test_script_that_does_not_close_its_app_exits_without_a_word(tmp_path: Path, grounds: Grounds) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with grounds(tmp_path) as ground:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            script,
            env=os.environ | {"REPRIEVE_URL": ground.url},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        output, errors = await process.communicate()
        assert (output, errors, process.returncode) == (b"waiting\n", b"", 0)
