"""Every page can be reached from the README, every anchor that a link names exists, and every decision is listed."""

import re
from pathlib import Path

from tests.docs.page import ROOT

LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]+))?\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[tuple[Path, str]]:
    text = CODE.sub("", page.read_text("utf-8"))
    return [((page.parent / target).resolve() if target else page, anchor) for target, anchor in LINK.findall(text)]


def reachable() -> set[Path]:
    found: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in found:
            found.add(page)
            ahead += [target for target, _ in links(page) if target.suffix == ".md"]
    return found


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    headings = re.findall(
        r"^#+ (.+)$", CODE.sub(lambda code: code[0].strip("`"), page.read_text("utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_reached_by_links_from_the_readme() -> None:
    pages = {*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")}
    assert sorted(str(page.relative_to(ROOT)) for page in pages - reachable()) == []


def test_every_page_is_on_the_map_or_beside_one_that_is() -> None:
    listed = {target for target, _ in links(ROOT / "docs" / "README.md")}
    pages = {page for page in ROOT.glob("docs/**/*.md") if page.parent.name not in ("docs", "decisions")}
    assert sorted(str(page.relative_to(ROOT)) for page in pages - listed) == []


def test_every_anchor_exists() -> None:
    missing = [
        f"{page.relative_to(ROOT)} → {target.name}#{anchor}"
        for page in reachable()
        for target, anchor in links(page)
        if anchor and target.suffix == ".md" and anchor not in anchors(target)
    ]
    assert missing == []


def test_decisions_are_numbered_without_gaps_and_listed_by_their_titles() -> None:
    folder = ROOT / "docs" / "decisions"
    pages = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    titles = [page.read_text("utf-8").partition("\n")[0] for page in pages]
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    listed = re.findall(r"^(\d+)\. \[(.+)\]\((.+)\)$", (folder / "README.md").read_text("utf-8"), re.MULTILINE)
    assert [(f"# {number}. {title}", name) for number, title, name in listed] == [
        (title, page.name) for title, page in zip(titles, pages, strict=True)
    ]
