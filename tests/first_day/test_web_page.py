"""The page about web applications, followed to the letter: a request enqueues, and a worker sends the mail."""

import re
from pathlib import Path

from tests.first_day.user import User

PAGE = Path(__file__).parents[2] / "docs" / "learn" / "web.md"
REQUEST = """
import warnings
warnings.simplefilter("ignore")
from fastapi.testclient import TestClient
from shop import api
with TestClient(api) as client:
    print(client.post("/sign-ups", params={"user_id": 42, "company": "acme"}).status_code)
"""


def test_a_sign_up_through_fastapi_is_last_success_at_once_and_its_mail_sent_by_a_worker(user: User) -> None:
    (source,) = re.findall(r"^`shop\.py`:\n\n```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    user.write("shop.py", source)
    asked = user.python("-c", REQUEST, PYTHONUNBUFFERED="1")
    assert asked.stdout.strip() == "202", asked.stderr
    with user.running("worker", "shop:jobs", "--processes", "1", PYTHONUNBUFFERED="1") as worker:
        worker.wait_for("welcome, user 42")
        assert worker.stop() == 0
    assert worker.output.count("welcome, user 42") == 1
