"""The views for Django answer real requests of Django, in a process of their own: its settings are global."""

import json
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.page import text_of

PAGE = text_of("docs/learn/web.md")
PROGRAM = """
import asyncio, json
import django
from django.conf import settings
settings.configure(ALLOWED_HOSTS=["testserver"], DEFAULT_CHARSET="utf-8")
django.setup()
from django.test import RequestFactory
import jobs, views
request = RequestFactory().post("/sign-ups", {"user_id": "42"})
first = views.sign_up(request)
second = asyncio.run(views.sign_up_async(request))
ids = [json.loads(answer.content)["job"] for answer in (first, second)]
states = [jobs.app.job(job_id).fetch().state for job_id in ids]
jobs.app.close()
print(json.dumps([first.status_code, second.status_code, *states]))
"""


def test_views_of_django_enqueue_from_plain_and_async_code(tmp_path: Path) -> None:
    for name in ("jobs", "views"):
        (source,) = re.findall(rf"^`{name}\.py`:\n\n```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
        (tmp_path / f"{name}.py").write_text(source, "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [202, 202, "waiting", "waiting"]
