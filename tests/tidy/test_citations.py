"""Texts refer to what is there, docstrings are whole, nothing is unused; and each rule can fail."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache

import pytest

from shalott.checkers.judge import JUDGES
from tests.tidy.citations import (
    CITATION_RULES,
    MEANT,
    NOT_READ,
    PROTOCOLS,
    Line,
    archive_hosts,
    comments_of_c,
    cut_docstrings,
    prose,
    tree_of,
)
from tests.tidy.sources import ROOT, parse, project_files, python_sources
from tests.tidy.unused import (
    IMPORTED_AS,
    NO_USER_HERE,
    RUN_BY_NAME,
    entry_points,
    unused_dependencies,
    unused_names,
)

pytestmark = pytest.mark.lint

BINARY = (".py", ".parquet", ".png", ".gz", ".zst", ".jepsen", ".fressian")
SCRIPTS = ("scripts/", ".ci/")
PLANTED_TREE = tree_of(
    (
        "shalott/harness/run/run.py",
        "docs/how-to/check-a-history.md",
        "shalott/checkers/queues/loss_windows.py",
        "tests/x/test_y.py",
    ),
    "# 2 Two\n\n## 2.1 Two one\n",
)


@cache
def texts() -> dict[str, str]:
    """Files that are text but not Python, by path."""
    return {
        name: (ROOT / name).read_text(errors="replace")
        for name in project_files()
        if not name.endswith(BINARY)
    }


@cache
def read() -> tuple[tuple[str, list[Line]], ...]:
    """What people read of every file: all of a document, the prose of code."""
    return tuple(_read())


def _read() -> Iterator[tuple[str, list[Line]]]:
    for source in python_sources():
        if not source.path.startswith("tests/tidy/"):
            yield source.path, prose(source)
    for path, text in texts().items():
        if path.endswith((".c", ".h")):
            yield path, comments_of_c(text)
        elif path not in NOT_READ and (path.endswith((".md", ".sh")) or path.startswith(SCRIPTS)):
            yield path, list(enumerate(text.splitlines(), 1))


@pytest.mark.parametrize("rule", CITATION_RULES)
def test_what_texts_refer_to_is_there(rule: str) -> None:
    tree = tree_of(project_files(), texts()[PROTOCOLS])
    found = [line for path, lines in read() for line in CITATION_RULES[rule](path, lines, tree)]
    assert not found, "\n" + "\n".join(found)


def test_no_docstring_is_cut_at_a_colon() -> None:
    found = [line for source in python_sources() for line in cut_docstrings(source)]
    assert not found, "\n" + "\n".join(found)


def test_no_file_names_the_host_of_a_package_archive() -> None:
    everything = texts() | {source.path: source.text for source in python_sources()}
    found = [line for path, text in everything.items() for line in archive_hosts(path, text)]
    assert not found, "\n" + "\n".join(found)


def test_every_name_is_used() -> None:
    """Another place uses each name, or the list says why not, and the list has no other names."""
    judges = tuple(place.rpartition(":")[2] for place in JUDGES.values())
    named = (*entry_points((ROOT / "pyproject.toml").read_text()), *judges)
    assert sorted(unused_names(python_sources(), named)) == sorted(NO_USER_HERE)


def declared() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    return [*project["dependencies"], *(one for extra in extras for one in extra)]


def test_every_dependency_is_used() -> None:
    found = list(unused_dependencies(declared(), python_sources()))
    assert not found, "\n" + "\n".join(found)


def test_the_lists_of_exceptions_hold_only_what_is_needed() -> None:
    names = " ".join(declared())
    assert [name for name in (*IMPORTED_AS, *RUN_BY_NAME) if name not in names] == []
    everything = "\n".join(line for _, lines in read() for _, line in lines)
    assert [name for name in MEANT if name not in everything] == []


@pytest.mark.parametrize(
    ("rule", "line", "count"),
    [
        ("other documents", "as in reference 2.2.9", 1),
        ("other documents", "see the reference (3.1)", 1),
        ("other documents", "the reference implementation of 1234", 0),
        ("sections", "docs/protocols.md 2.1, 2", 0),
        ("sections", "docs/protocols.md 2.1, 2.7", 1),
        ("sections", "docs/protocols.md 9.", 1),
        ("paths", "see shalott/harness/run/run.py and docs/how-to/check-a-history.md", 0),
        ("paths", "see shalott/harness/run/ and tests/x/test_y.test_that", 0),
        ("paths", "see `shalott/harness/run.py`.", 1),
        ("paths", "broker/processor/SendMessageProcessor.java", 0),
        ("paths", "store/harness/run.py and shalott/harness/run*.py", 0),
        ("files", "run.py is read top to bottom", 0),
        ("files", "ran.py is read top to bottom", 1),
        ("files", "see yardstick.md", 1),
        ("modules", "checkers.queues.causes names the window", 0),
        ("modules", "checkers.causes names the window", 1),
        ("modules", "`broker.register_interval_ms` is a setting", 0),
        ("house words", "what its reign began, and the fates of messages.", 2),
        ("house words", "``fate`` draws, in fates.py, of the Reign, `habits`", 0),
    ],
)
def test_a_dangling_reference_is_found(rule: str, line: str, count: int) -> None:
    found = list(CITATION_RULES[rule]("a.md", [(1, line)], PLANTED_TREE))
    assert len(found) == count, found


def test_prose_is_docstrings_and_comments() -> None:
    text = '"""One.\n\nTwo."""\n\nx = "not prose"  # three\n\n\ndef f() -> None:\n    """Four."""\n'
    assert [line for _, line in prose(parse("a.py", text))] == [
        '"""One.',
        "",
        'Two."""',
        "# three",
        '    """Four."""',
    ]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('"""The journal:\n\nwhat it is.\n"""\n', 1),
        ('class A:\n    """What it\n    is:"""\n', 0),
        ('def f():\n    """Of these:\n    one."""\n', 1),
        ('"""The journal.\n\nIt is:\n"""\n', 0),
    ],
)
def test_a_docstring_cut_at_a_colon_is_found(text: str, count: int) -> None:
    assert len(list(cut_docstrings(parse("a.py", text)))) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("https://files.pythonhosted." + "org/packages", 1),
        ("deb http://deb." + "debian.org/debian bookworm main", 1),
        ("apt-get install -y docker.io", 0),
        ("the manual at www." + "debian.org", 0),
    ],
)
def test_the_host_of_a_package_archive_is_found(text: str, count: int) -> None:
    assert len(list(archive_hosts("a.sh", text))) == count


def test_a_name_without_a_user_is_found() -> None:
    sources = [
        parse(
            "shalott/harness/a.py",
            "X = 1\nY = X\n\ndef f():\n    return f()\n\ndef g():\n    return Y\n",
        ),
        parse("shalott/harness/b.py", "from shalott.harness.a import g\n\ng()\n"),
        parse("tests/test_a.py", "from shalott.harness.a import f\n\nf()\n"),
    ]
    assert list(unused_names(sources)) == [("shalott/harness/a.py", "f")]


def test_a_dependency_without_a_user_is_found() -> None:
    sources = [parse("shalott/harness/a.py", "import msgspec\n")]
    assert list(unused_dependencies(["msgspec>=0.18", "left-pad>=1"], sources)) == [
        "pyproject.toml: nothing imports left-pad: use it or remove it"
    ]
