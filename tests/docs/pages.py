"""The documents as tests look at them: pages, words, links, anchors, code blocks, commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.tidy.sources import ROOT

DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"
EVIDENCE = DOCS / "evidence"
BESIDE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md")
WORDS_MAX = 45_000  # of all that is no evidence
LINE_MAX = 120
README_LINES_MAX = 150

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_COMMAND = re.compile(r"^(?:\$ )?(shalott .*)$", re.MULTILINE)
_INLINE = re.compile(r"`(shalott [a-z][^`]*)`")


class Link(NamedTuple):
    """A link of a page: the file that it leads to, and the anchor in it."""

    page: Path
    target: Path
    anchor: str


@cache
def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def pages() -> list[Path]:
    """Every page below docs."""
    return sorted(DOCS.rglob("*.md"))


def plain_pages() -> list[Path]:
    """All that is no evidence, README and its like too."""
    return [*(page for page in pages() if EVIDENCE not in page.parents), *beside()]


def beside() -> list[Path]:
    return [ROOT / name for name in BESIDE]


def words(page: Path) -> int:
    return len(read(page).split())


def prose(page: Path) -> str:
    """Without code blocks."""
    return _FENCE.sub("", read(page))


def links(page: Path) -> Iterator[Link]:
    """The links to files of ours."""
    for written in _LINK.findall(prose(page)):
        if "://" in written or written.startswith("mailto:"):
            continue
        name, _, anchor = written.partition("#")
        yield Link(page, (page.parent / name).resolve() if name else page, anchor)


def anchors(page: Path) -> set[str]:
    """Of a page's headings, as GitHub and the site name them; one that comes again has a number."""
    found: dict[str, int] = {}
    names = set()
    for heading in _HEADING.findall(prose(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
        again = found.get(slug, 0)
        found[slug] = again + 1
        names.add(f"{slug}-{again}" if again else slug)
    return names


def commands(page: Path) -> Iterator[list[str]]:
    """What code blocks type, as words behind ``shalott``."""
    for _, language, body in _FENCE.findall(read(page)):
        if language in ("", "sh", "console"):
            for line in _COMMAND.findall(body.replace("\\\n", " ")):
                yield shlex.split(line, comments=True)[1:]


def code_lines(page: Path) -> Iterator[tuple[str, str]]:
    """(language, line): what code blocks have a reader type, without remarks; of console blocks
    what is behind $."""
    for _, language, body in _FENCE.findall(read(page)):
        for line in body.replace("\\\n", " ").splitlines():
            if language == "sh" or (language in ("", "console") and line.startswith("$ ")):
                yield language, " ".join(re.sub(r"\s#\s.*", "", line.removeprefix("$ ")).split())


def first_block(page: Path, language: str) -> str:
    """ "" if there is none."""
    blocks = _FENCE.findall(read(page))
    return next((body for _, found, body in blocks if found == language), "")


def commands_in_prose(page: Path) -> list[str]:
    """Commands that sentences name; "|" and "..." may stand in them."""
    return [" ".join(each.split()) for each in _INLINE.findall(prose(page))]
