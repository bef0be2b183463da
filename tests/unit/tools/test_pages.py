"""The pages of docs: their links lead somewhere, and the index has each of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from magnetar.client import exceptions

ROOT = Path(__file__).parents[3]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target, _, anchor in re.findall(r"\]\(([^)#\s]*)(#([^)\s]+))?\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        there = (page.parent / target) if target else page
        assert there.exists(), target
        if anchor:
            assert anchor in anchors(there), f"{target}#{anchor}"


@pytest.mark.parametrize("folder", ["docs", "docs/measurements"])
def test_the_index_of_a_folder_has_each_of_its_pages(folder: str) -> None:
    index = (ROOT / folder / "README.md").read_text("utf-8")
    listed = set(re.findall(r"\]\((\w[^)/]*\.md)\)", index))
    assert listed == {page.name for page in (ROOT / folder).glob("*.md")} - {"README.md"}


def test_the_front_page_of_the_client_has_each_of_its_pages() -> None:
    listed = re.findall(r"\]\(client/(\w[^)/]*\.md)\)", (ROOT / "docs" / "client.md").read_text("utf-8"))
    assert sorted(set(listed)) == sorted(page.name for page in (ROOT / "docs" / "client").glob("*.md"))


def test_the_page_about_errors_has_each_error() -> None:
    page = (ROOT / "docs" / "client" / "errors.md").read_text("utf-8")
    named = set(re.findall(r"`(\w+)`", page))
    assert set(exceptions.__all__) - named == set()


def test_what_was_measured_is_apart_from_how_to_use_it() -> None:
    titles = [page.read_text("utf-8").partition("\n")[0] for page in (ROOT / "docs").glob("*.md")]
    assert not [
        title for title in titles if re.search(r"[Bb]enchmark|[Mm]easurement|[Ff]uzzing|[Ss]imulation", title)
    ]
    assert "measurements/README.md" in (ROOT / "docs" / "README.md").read_text("utf-8")
