import hashlib
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve.core.fingerprint import (
    _VARIES,
    MAX_FRAMES,
    MAX_MESSAGE_CHARS,
    MAX_TEMPLATE_CHARS,
    Frame,
    fingerprint,
    mask,
)

CORPUS = Path(__file__).parent / "corpus"
SYMBOLS = str.maketrans("␤␉␛", "\n\t\x1b")

# What the masks look for and what stands beside it, so that drawn messages come close to every pattern.
NEAR_MISSES = (
    r"5|12|503|550 5.1.1|5.7.1|a|ab|Abc|May|Mon, |Jan |status |code|error|Errno |utf-8|a1b2|0x|ff|cus_|ORD-|eu-west-1"
    r"|deadbeef| s| MB|%| UTC|R$|C:\|http|https://|://|//|url: /|arn:|.com|.de|.pdf|localhost|localhost:|x@y.example"
    r"|HTTPConnectionPool(host='|', port=5)|server at "
    r"""|'|"|`|: '|: b'|, '|argument: '|)=(|contains (|input_value=|, input_type| is not a valid """
    r"|<|>|<n>|<url>|<value>|(|)|[|]|{|}|-|_|.|,|:|::|;|/|\|@|=|+|#|$|…|é|注| |  "
)
PIECES = [*NEAR_MISSES.split("|"), "\x1b[31m", "\x00", "\ud800", "\u202e", "x" * 60, "word " * 20]
MESSAGES = st.text() | st.lists(st.sampled_from(PIECES), max_size=100).map("".join)


class Row(msgspec.Struct, frozen=True):
    half: str
    label: str
    type: str
    code: str
    message: str

    @property
    def group(self) -> str:
        return fingerprint(self.message.translate(SYMBOLS), type=self.type, code=self.code).id


def corpus() -> list[Row]:
    files = [path.read_text(encoding="utf-8").splitlines() for path in sorted(CORPUS.glob("*.tsv"))]
    return [Row(*line.split("\t")) for lines in files for line in lines[1:]]


def first_byte(text: str) -> int:
    return hashlib.sha256(text.encode()).digest()[0]


def test_corpus_is_large_and_split_by_a_stable_hash() -> None:
    rows = corpus()
    assert len(rows) >= 500
    assert [
        row for row in rows if (row.half == "held_out") != (first_byte(row.label) < 26 or first_byte(row.message) < 114)
    ] == []


def test_corpus_holds_whole_classes_back_from_tuning() -> None:
    rows = corpus()
    held_back = {row.label for row in rows} - {row.label for row in rows if row.half == "tune"}
    assert len(held_back) >= 50


def test_held_out_messages_form_pure_groups_and_few_of_them() -> None:
    rows = [row for row in corpus() if row.half == "held_out"]
    labels_of, groups_of = defaultdict[str, Counter[str]](Counter), defaultdict[str, set[str]](set)
    for row in rows:
        labels_of[row.group][row.label] += 1
        groups_of[row.label].add(row.group)
    purity = sum(max(labels.values()) for labels in labels_of.values()) / len(rows)
    templates = sum(map(len, groups_of.values())) / len(groups_of)
    figures = f"purity {purity:.4f}, {templates:.3f} templates a class, {len(rows)} messages, {len(groups_of)} classes"
    assert purity >= 0.98, figures
    assert templates <= 1.2, figures


@pytest.mark.parametrize(
    ("message", "template"),
    [
        (
            "550 5.1.1 <ana+x@acme.example>: Recipient address rejected: User unknown",
            "550 5.1.1 <email>: Recipient address rejected: User unknown",
        ),
        ("connect to mx.acme.example[2001:db8::7]:25: Connection refused", "connect to <host>: Connection refused"),
        ("502 Server Error: Bad Gateway for url: https://a.io/x?y=1", "502 Server Error: Bad Gateway for url: <url>"),
        ("Order ORD-2025-00042 not found", "Order <n> not found"),
        ("Order 0192f3a4-7c11-7b2e-9d00-3f5e6a7b8c9d not found", "Order <n> not found"),
        ("[Errno 2] No such file or directory: '/tmp/a b.pdf'", "[Errno 2] No such file or directory: <value>"),
        ("disk /dev/sda1 is 97.5% full", "disk <path> is <n> full"),
        ("cannot schedule before Tue, 11 Mar 2025 10:00:00 +0000", "cannot schedule before <n>"),
        ("clock is 4.2 s ahead of worker-12", "clock is <n> ahead of worker-<n>"),
        ("Saldo insuficiente: disponível R$ 1.290,00", "Saldo insuficiente: disponível <n>"),
        ("注文12が見つかりません", "注文<n>が見つかりません"),
    ],
)
def test_template_masks_what_varies_and_keeps_the_rest(message: str, template: str) -> None:
    assert mask(message) == template


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("550 5.1.1 rejected", "550 5.7.1 rejected"),
        ("HTTP 502 from upstream", "HTTP 503 from upstream"),
        ('relation "orders" does not exist', 'column "orders" does not exist'),
        ('relation "orders" does not exist', 'relation "outbox" does not exist'),
        ("'email'", "'to_address'"),
        ("f() missing 1 required positional argument: 'tenant'", "f() missing 1 required positional argument: 'user'"),
        ("killed by signal 9", "killed by signal 11"),
    ],
)
def test_names_in_code_and_codes_of_a_protocol_tell_errors_apart(one: str, other: str) -> None:
    assert fingerprint(one).id != fingerprint(other).id


@given(MESSAGES)
def test_template_is_one_bounded_printable_line(message: str) -> None:
    template = mask(message)
    assert len(template) <= MAX_TEMPLATE_CHARS
    assert template.isprintable()


@given(MESSAGES)
def test_template_is_its_own_template(message: str) -> None:
    template = mask(message)
    assert mask(template) == template


def test_templates_of_the_corpus_are_their_own_templates() -> None:
    templates = {mask(row.message.translate(SYMBOLS)) for row in corpus()}
    assert {template: mask(template) for template in templates if mask(template) != template} == {}


@pytest.mark.parametrize(
    ("message", "template"),
    [
        ("", ""),
        (" \n\t ", ""),
        ("\x00\x1b[0m", ""),
        ("1234567890", "<n>"),
        ("\x1b[31mfailed\x1b[0m after 3 s", "failed after <n>"),
        ("pay\u202ement\ud800 lost\x00", "pay ment lost"),
        ("first line\r\n\tsecond line.", "first line second line"),
    ],
)
def test_what_cannot_be_printed_leaves_no_trace(message: str, template: str) -> None:
    assert mask(message) == template


@pytest.mark.parametrize("piece", ["a@", "1.", "'", "(", "a-1.", "é", "http://", "x" * 50 + " ", "503 Ab1 "])
def test_message_of_ten_megabytes_costs_what_its_beginning_costs(piece: str) -> None:
    message = piece * (10_000_000 // len(piece))
    assert mask(message) == mask(message[:MAX_MESSAGE_CHARS])


def test_long_template_is_cut() -> None:
    template = mask("no such thing " * 50)
    assert template == ("no such thing " * 50)[: MAX_TEMPLATE_CHARS - 2] + "…"


def test_no_group_repeats_without_bound_unless_it_gives_nothing_back() -> None:
    assert re.findall(r"\)(?:[*+]|\{\d+,\})(?!\+)", _VARIES.pattern) == []


def test_type_code_template_and_frames_all_count() -> None:
    frames = [Frame(module="mail", function="send")]
    marks = [
        fingerprint("boom"),
        fingerprint("bang"),
        fingerprint("boom", type="ValueError"),
        fingerprint("boom", code="ValueError"),
        fingerprint("boom", frames=frames),
        fingerprint("boom", frames=[Frame(module="mail", function="render")]),
        fingerprint("boom", frames=frames * 2),
    ]
    assert len({mark.id for mark in marks}) == len(marks)


def test_parts_cannot_be_mistaken_for_each_other() -> None:
    assert fingerprint("boom", type="a', 'b").id != fingerprint("boom", type="a", code="b").id


def test_only_the_innermost_frames_count() -> None:
    inner = [Frame(module="mail", function=name) for name in ("send", "connect", "login")]
    assert len(inner) == MAX_FRAMES
    outer = Frame(module="app", function="main")
    assert fingerprint("boom", frames=[outer, *inner]) == fingerprint("boom", frames=inner)
    assert fingerprint("boom", frames=[outer, *inner[1:]]) != fingerprint("boom", frames=inner)


def test_any_text_will_do_as_type_and_code() -> None:
    assert re.fullmatch("[0-9a-f]{16}", fingerprint("boom", type="\ud800", code="\x00").id)


def test_id_is_the_same_in_every_process() -> None:
    program = "from reprieve.core.fingerprint import fingerprint; print(fingerprint('Order 7 not found', type='E').id)"
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert printed == {fingerprint("Order 88213 not found", type="E").id}
