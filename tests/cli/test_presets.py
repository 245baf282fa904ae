"""`reprieve presets`: the numbers are those of the core, and the pictures are true to them."""

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

from reprieve.cli.plot import HEIGHT, Scale, draw
from reprieve.cli.presets import PURPOSES
from reprieve.cli.schedule import Schedule, schedule_of
from reprieve.core import presets
from reprieve.core.backoff import Decorrelated, Equal, Exponential, Formula, Full, Linear, Steps
from reprieve.core.policy import Policy
from tests.cli.shell import answer, complaint, process, reprieve
from tests.terminal import on_terminal

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9]m")


def test_the_list_names_every_preset_with_its_waits() -> None:
    rows = {line.split()[0]: " ".join(line.split()) for line in reprieve("presets", "list").stdout.splitlines() if line}
    assert set(presets.ALL) < set(rows)
    assert rows["swift"] == "swift 4 1s, 5s, 25s 31s"
    assert rows["screenshot"] == "screenshot 6 5s, 25s, 2m5s, 10m25s, 52m5s 1h5m"
    assert rows["mta"] == "mta ∞ 5m, 25m, 2h, 2h, 2h, 2h, … 5d"


def test_no_line_of_the_list_is_wider_than_the_terminal() -> None:
    assert max(map(len, reprieve("presets", "list").stdout.splitlines())) <= 80
    narrow = on_terminal("presets", "list", columns=50).splitlines()
    assert max(map(len, narrow)) <= 50
    assert any(line.startswith("webhook") for line in narrow)


def test_scripts_get_the_numbers() -> None:
    listed = {preset["name"]: preset for preset in answer("presets", "list")}
    assert list(listed) == list(presets.ALL)
    email = listed["email"]
    assert (email["maxAttempts"], email["deadline"], email["cap"], email["total"]) == (5, 86_400, 60, 15)
    assert email["waits"][2] == {"failures": 3, "wait": 4.0, "earliest": 3.0, "latest": 5.0}
    assert (listed["mta"]["maxAttempts"], listed["mta"]["total"], listed["render"]["cap"]) == (None, 432_000, None)


def test_one_preset_is_shown_with_all_its_numbers() -> None:
    shown = reprieve("presets", "show", "email").stdout
    facts = dict(re.findall(r"^  (\w+(?: \w+)?) {2,}(.+?) *$", shown, re.MULTILINE))
    assert facts == {
        "attempts": "5",
        "backoff": "1s × 2^(k−1)",
        "cap": "1m",
        "jitter": "± 25 %, may pass the cap",
        "deadline": "1d after enqueue",
        "in all": "15s",
    }
    assert "E-mail through a gateway" in shown
    assert re.search(r"^3 +4s +3s +5s +7s *$", shown, re.MULTILINE)


def test_one_preset_for_scripts_is_the_one_of_the_list() -> None:
    assert answer("presets", "show", "webhook") in answer("presets", "list")


def test_a_preset_that_does_not_exist_is_answered_with_those_that_do() -> None:
    assert "the presets are swift, patient, smtp" in complaint("presets", "show", "nonsense", status=2)
    complaint("presets", "plot", "swift", "nonsense", status=2)


def test_purposes_are_the_words_beside_the_presets() -> None:
    body = ast.parse(Path(presets.__file__).read_text("utf-8")).body
    words = {}
    for statement, following in pairwise(body):
        match statement, following:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                words[name] = text
            case _:
                pass
    assert words == PURPOSES


@pytest.mark.parametrize(
    ("policy", "backoff", "jitter"),
    [
        (Policy(backoff=Decorrelated("1s")), "from 1s to 3 × the previous wait", "none"),
        (Policy(backoff=Exponential("1s", factor=1)), "always 1s", "none"),
        (Policy(backoff=Linear("1s", step="5s", jitter=0.5)), "1s + 5s × (k−1)", "± 50 %, may pass the cap"),
        (Policy(backoff=Steps("5s", jitter=Equal())), "always 5s", "anything from half the wait up to the wait"),
        (Policy(backoff=Steps("5s", "1m", jitter=Full("2s"))), "5s, 1m, and so on", "anything from 2s up to the wait"),
        (Policy(backoff=Formula(float)), "custom function of k", "none"),
        (presets.smtp, "1s × 2^(k−1)", "± 25 %, at most the cap"),
        (presets.webhook, "5s, 5m, 30m, 2h, 5h, 10h, 10h, and so on", "± 10 %, always below the cap"),
    ],
)
def test_every_backoff_and_jitter_is_said_in_words(policy: Policy, backoff: str, jitter: str) -> None:
    schedule = schedule_of(policy, "mine")
    assert (schedule.backoff, schedule.jitter) == (backoff, jitter)


def test_a_policy_of_one_attempt_waits_never() -> None:
    schedule = schedule_of(Policy(max_attempts=1), "once")
    assert (schedule.waits, schedule.total) == ((), 0)
    assert list(draw([schedule], 80))


# pictures


def bars(name: str) -> list[int]:
    """Read the heights of the bars out of the picture of one preset, in eighths of a row."""
    lines = reprieve("presets", "plot", name).stdout.splitlines()[:HEIGHT]
    columns = [line.partition("│")[2] for line in lines]
    width = max(map(len, columns))
    eighths = {block: height for height, block in enumerate(" ▁▂▃▄▅▆▇█")} | {"░": 8}
    return [sum(eighths[line.ljust(width)[column]] for line in columns) for column in range(0, width, 2)]


def test_bars_grow_with_the_waits() -> None:
    heights = bars("screenshot")
    assert len(heights) == 5
    assert heights == sorted(heights)
    steps = [after - before for before, after in pairwise(heights)]
    # The same factor is the same step on a logarithmic scale, to the eighth of a row.
    assert max(steps) - min(steps) <= 1
    assert min(steps) > 8


def test_equal_waits_have_equal_bars() -> None:
    assert len(set(bars("pdf"))) == 1


def test_jitter_is_the_light_part_of_a_bar() -> None:
    assert "░" not in reprieve("presets", "plot", "screenshot").stdout
    assert reprieve("presets", "plot", "standard").stdout.count("░") > 20


def test_presets_stand_side_by_side_as_long_as_there_is_room() -> None:
    picture = reprieve("presets", "plot", "swift", "email", "standard", "mta").stdout
    assert len(picture.splitlines()) == HEIGHT + 3
    assert re.search(r"^ +swift +email +standard +mta$", picture, re.MULTILINE)
    narrow = reprieve("presets", "plot", "swift", "email", "standard", "mta", env={"COLUMNS": "40"}).stdout
    assert max(map(len, narrow.splitlines())) <= 40
    assert re.search(r"^ +swift +email$", narrow, re.MULTILINE)
    assert re.search(r"^ +mta$", narrow, re.MULTILINE)


def test_without_names_all_presets_are_drawn_within_80_columns() -> None:
    picture = reprieve("presets", "plot").stdout
    assert set(presets.ALL) < set(picture.split())
    assert max(map(len, picture.splitlines())) <= 80


def test_the_scale_is_labelled_with_round_waits_and_the_longest() -> None:
    labels = re.findall(r"^ *(\S+) │", reprieve("presets", "plot", "swift", "render").stdout, re.MULTILINE)
    assert labels == ["2m5s", "1m", "10s", "1s"]


def test_a_scale_ends_at_the_longest_wait() -> None:
    schedules: list[Schedule] = [schedule_of(presets.render, "render")]
    scale = Scale(schedules)
    assert scale.height(125) == HEIGHT
    assert 0 < scale.height(5) < scale.height(25) < HEIGHT
    assert scale.height(0) == 0


def test_scripts_get_the_numbers_of_a_picture() -> None:
    assert [preset["name"] for preset in answer("presets", "plot", "pdf", "bull")] == ["pdf", "bull"]


# colours


@pytest.mark.parametrize("command", [("presets", "list"), ("presets", "show", "email"), ("presets", "plot", "email")])
def test_colours_appear_when_they_are_asked_for_and_never_when_forbidden(command: tuple[str, ...]) -> None:
    assert COLOUR.search(process(*command, FORCE_COLOR="1", TERM="xterm-256color").stdout)
    assert not COLOUR.search(process(*command, FORCE_COLOR="1", NO_COLOR="1", TERM="xterm-256color").stdout)
    assert "\x1b" not in process(*command, TERM="xterm-256color").stdout


def test_colours_of_errors_follow_the_same_rules() -> None:
    assert "\x1b[31m" in process("dance", FORCE_COLOR="1").stderr
    assert "\x1b" not in process("dance", FORCE_COLOR="1", NO_COLOR="1").stderr
    assert "\x1b" not in process("dance").stderr
