"""The documents: in one table of contents, of bounded size, with links and commands that work.

File paths in them are checked with those of comments (tests/tidy/test_citations.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from shalott.broker.rabbit.ctl.verbs import VERBS as RABBIT_VERBS
from shalott.harness.cli.checking import OPTIONS
from shalott.harness.cli.commands import make_app
from shalott.harness.cli.ctl import VERBS
from tests.docs import pages as docs
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.unit

KINDS = ("getting-started", "how-to", "reference", "explanation", "evidence")
AT_THE_TOP = ("index.md", "architecture.md", "protocols.md")  # cited by code, or the contents
HEADINGS = ("Getting started", "How-to", "Reference", "Explanation", "Evidence")
# Commands of examples and placeholders have names that are no option of ours.
OF_OTHERS = ("--no-fsync",)

PUBLISHED = docs.DOCS / "evidence" / "published.md"
SYSTEMS = "evidence/systems/"  # a page a system, which its own index lists


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def navigation() -> dict[str, list[str]]:
    """Of mkdocs.yml: section -> pages."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    loaded = yaml.safe_load(re.sub(r"!!python\S+", "", text))
    return {
        section: [page for entry in entries for page in entry.values()]
        for each in loaded["nav"]
        for section, entries in each.items()
        if isinstance(entries, list)
    }


def contents() -> dict[str, list[str]]:
    """Of docs/index.md: section -> pages."""
    found: dict[str, list[str]] = {}
    for part in docs.read(docs.INDEX).split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        found[title] = re.findall(r"\]\(([^)#]+\.md)\)", body)
    return found


def test_every_page_is_in_the_table_of_contents_once() -> None:
    listed = [page for of_section in contents().values() for page in of_section]
    there = [page.relative_to(docs.DOCS).as_posix() for page in docs.pages()]
    generated = [
        name for name in there if name.startswith(SYSTEMS) and name != f"{SYSTEMS}index.md"
    ]
    assert sorted(listed) == [name for name in there if name not in ("index.md", *generated)]
    index = docs.read(docs.DOCS / SYSTEMS / "index.md")
    assert [f"{SYSTEMS}{name}" for name in re.findall(r"\]\((.+?\.md)\)", index)] == generated


def test_the_site_s_navigation_is_the_table_of_contents() -> None:
    assert navigation() == contents()
    assert tuple(contents()) == HEADINGS


def test_a_page_lies_in_the_folder_of_its_kind() -> None:
    for heading, kind in zip(HEADINGS, KINDS, strict=True):
        for page in contents()[heading]:
            assert page.startswith(f"{kind}/") or page in AT_THE_TOP, page


def test_a_page_says_for_whom_it_is() -> None:
    """In its first sentences."""
    readers = r"\b[Ff]or (\w+ )?(users|readers|newcomers|developers|teams|CI|operators)\b"
    for page in (*docs.pages(), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"):
        assert re.search(readers, docs.read(page)[:500]), named(page)


@pytest.mark.parametrize("page", [*docs.pages(), *docs.beside()], ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    for link in docs.links(page):
        assert link.target.exists(), f"{named(page)}: {link.target} is not there"
        if link.anchor and link.target.suffix == ".md":
            assert link.anchor in docs.anchors(link.target), f"{named(page)}: #{link.anchor}"


def test_pages_of_the_site_link_within_it() -> None:
    outside = [
        f"{named(page)}: {link.target}"
        for page in docs.pages()
        for link in docs.links(page)
        if docs.DOCS not in link.target.parents
    ]
    assert outside == []


def test_all_pages_but_evidence_have_no_more_words_than_a_person_reads() -> None:
    """README counts too; a changelog grows, and a drawing is none."""
    counted = [page for page in docs.plain_pages() if docs.DOCS in page.parents]
    drawing = docs.read(docs.DOCS / "architecture.md").partition("<!-- rooms -->")[2]
    drawn = len(drawing.partition("<!-- /rooms -->")[0].split())
    assert sum(map(docs.words, [*counted, ROOT / "README.md"])) - drawn <= docs.WORDS_MAX


def test_lines_are_no_longer_than_a_screen() -> None:
    long = [
        f"{named(page)}:{number}: {len(line)}"
        for page in docs.plain_pages()
        for number, line in enumerate(docs.read(page).splitlines(), 1)
        if len(line) > docs.LINE_MAX
    ]
    assert long == []


def test_the_readme_is_short_and_says_how_to_install() -> None:
    text = docs.read(ROOT / "README.md")
    assert len(text.splitlines()) <= docs.README_LINES_MAX
    assert "\n## Install\n" in text


@cache
def group() -> Mapping[str, Any]:
    found: Any = typer.main.get_command(make_app())
    return found.commands  # type: ignore[no-any-return]


def options_of(command: str) -> set[str]:
    if command == "check":
        return {name for names, *_ in OPTIONS for name in names}
    found = group()[command].params
    return {name for each in found for name in (*each.opts, *each.secondary_opts)}


def wrong(words: Sequence[str]) -> list[str]:
    """What there is not in a command: itself, its options, its verb."""
    command, *rest = words
    if command == "--help":
        return []
    if command not in group():
        return [f"shalott {command}"]
    if command == "ctl":
        return (
            [rest[0]]
            if rest and rest[0].islower() and rest[0] not in {*VERBS, *RABBIT_VERBS}
            else []
        )
    options = {word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    return sorted(options - options_of(command) - {"--help", *OF_OTHERS})


@pytest.mark.parametrize("page", [*docs.pages(), *docs.beside()], ids=named)
def test_commands_are_commands(page: Path) -> None:
    for words in docs.commands(page):
        assert wrong(words) == [], " ".join(words)
    if page == PUBLISHED:  # its commands are of plug-ins, which need not be here
        return
    for text in docs.commands_in_prose(page):
        assert wrong(re.split(r"[\s|]+", text)[1:]) == [], text


@pytest.mark.parametrize("page", docs.plain_pages(), ids=named)
def test_command_lines_can_be_parsed(page: Path) -> None:
    """Values too: a number where one is wanted, an argument where one is needed."""
    for command, *rest in docs.commands(page):
        if command not in ("check", "ctl", "--help") and "--help" not in rest:
            group()[command].make_context(command, list(rest))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["test", "--nemesis", "kill", "--seed", "1"], []),
        (["test", "--nemeses", "kill"], ["--nemeses"]),
        (["tests"], ["shalott tests"]),
        (["check", "x.edn", "--model", "log", "--fast"], ["--fast"]),
        (["ctl", "ha-stats"], ["ha-stats"]),
        (["ctl", "list_queues", "name", "-p", "/"], []),
    ],
)
def test_a_wrong_command_is_found(words: list[str], found: list[str]) -> None:
    assert wrong(words) == found


def test_anchors_are_those_of_headings(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b` c: d\n\n## [E](x.md)\n\n## E\n\n```\n# no heading\n```\n")
    assert docs.anchors(page) == {"a-b-c-d", "e", "e-1"}
