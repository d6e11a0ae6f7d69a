"""Every file has the project's shape, nothing lies about unused, and each rule can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.tidy.dead_files import dead_modules, dead_texts
from tests.tidy.shape import (
    CATCHES_ALL,
    CODE_RULES,
    FILE_LINES_MAX,
    FUNCTION_LINES_MAX,
    PLACES_MEANT,
    TEST_RULES,
    machine_paths,
    reminders,
)
from tests.tidy.sources import ROOT, package_sources, parse, project_files, python_sources

pytestmark = pytest.mark.lint

GOOD = '"""Says what it does."""\n\nfrom __future__ import annotations\n\n'


def texts() -> Mapping[str, str]:
    """Files that are text but not Python."""
    found = {}
    for name in project_files():
        if name.endswith((".py", ".parquet", ".png", ".gz", ".zst", ".jepsen", ".fressian")):
            continue
        found[name] = (ROOT / name).read_text(errors="replace")
    return found


@pytest.mark.parametrize("rule", CODE_RULES)
def test_the_packages_have_the_projects_shape(rule: str) -> None:
    found = [line for source in package_sources() for line in CODE_RULES[rule](source)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("rule", TEST_RULES)
def test_tests_and_benchmarks_have_the_projects_shape(rule: str) -> None:
    outside = [
        source for source in python_sources() if source.path.startswith(("tests/", "benchmarks/"))
    ]
    found = [line for source in outside for line in CODE_RULES[rule](source)]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("rule", [reminders, machine_paths], ids=["reminders", "machine paths"])
def test_no_text_holds_what_does_not_belong(rule: Callable[[str, str], Iterator[str]]) -> None:
    everything = dict(texts()) | {source.path: source.text for source in python_sources()}
    found = [
        line
        for path, text in everything.items()
        if path != "tests/tidy/test_shape.py"
        for line in rule(path, text)
    ]
    assert not found, "\n" + "\n".join(found)


def test_c_files_have_a_header_and_lines_and_lengths_to_read() -> None:
    found = []
    for path, text in texts().items():
        if not path.endswith((".c", ".h")):
            continue
        lines = text.splitlines()
        if not text.startswith("/* "):
            found.append(f"{path}:1: no comment that says what the file does")
        if len(lines) > FILE_LINES_MAX:
            found.append(f"{path}: {len(lines)} lines, more than {FILE_LINES_MAX}")
        found += [
            f"{path}:{number}: {len(line)} columns, more than 100"
            for number, line in enumerate(lines, 1)
            if len(line) > 100
        ]
    assert not found, "\n" + "\n".join(found)


def test_every_module_is_used() -> None:
    found = list(dead_modules(python_sources(), texts()))
    assert not found, "\n" + "\n".join(found)


def test_every_other_file_is_named_somewhere() -> None:
    found = list(dead_texts(python_sources(), texts()))
    assert not found, "\n" + "\n".join(found)


def test_the_lists_of_exceptions_hold_only_what_is_needed() -> None:
    catching = {
        source.path
        for source in package_sources()
        if any(
            line.lstrip().startswith(("except Exception", "except (Exception"))
            for line in source.text.splitlines()
        )
    }
    assert sorted(CATCHES_ALL.keys() - catching) == []
    assert sorted(path for path, _ in PLACES_MEANT if path not in project_files()) == []


@pytest.mark.parametrize(
    ("rule", "text", "complaint"),
    [
        ("file length", GOOD + "x = 1\n" * 600, "more than 600"),
        (
            "function length",
            GOOD + "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX,
            "f has 71 lines",
        ),
        (
            "function length",
            GOOD + "class A:\n    async def g(self):\n" + "        x = 1\n" * 90,
            "g has 91",
        ),
        ("header", "from __future__ import annotations\nx = 1\n", "no module docstring"),
        ("header", '"""Says what it does."""\nx = 1\n', "from __future__ import annotations"),
        ("handlers", GOOD + "try:\n    f()\nexcept:\n    pass\n", "bare except"),
        ("handlers", GOOD + "try:\n    f()\nexcept Exception:\n    pass\n", "except Exception"),
        (
            "handlers",
            GOOD + "try:\n    f()\nexcept (OSError, Exception):\n    pass\n",
            "except Exception",
        ),
        (
            "handlers",
            GOOD + "try:\n    f()\nexcept BaseException:\n    pass\n",
            "does not raise again",
        ),
        ("prints", GOOD + "def f():\n    print(1)\n", "print"),
        ("arguments passed on", GOOD + "def f(**kwargs):\n    g(**kwargs)\n", "passes **kwargs on"),
    ],
)
def test_a_file_out_of_shape_is_found(rule: str, text: str, complaint: str) -> None:
    found = list(CODE_RULES[rule](parse("shalott/harness/planted.py", text)))
    assert len(found) == 1, found
    assert complaint in found[0]


@pytest.mark.parametrize("rule", CODE_RULES)
@pytest.mark.parametrize(
    "text",
    [
        "",
        '"""Only a docstring."""\n',
        GOOD + "try:\n    f()\nexcept BaseException:\n    g()\n    raise\n",
        GOOD + "try:\n    f()\nexcept OSError:\n    pass\n",
        GOOD + "def f(**columns):\n    return list(columns)\n",
    ],
)
def test_a_file_in_shape_is_not(rule: str, text: str) -> None:
    assert list(CODE_RULES[rule](parse("shalott/harness/planted.py", text))) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("# TODO: later", 1),
        ("x = 1  # FIXME", 1),
        ("todos are fine, and so is a Hackney", 0),
        ("XXX", 1),
    ],
)
def test_a_reminder_is_found(text: str, count: int) -> None:
    assert len(list(reminders("a.md", text))) == count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('path = "/home/someone/project"', 1),
        ("see /root/.cache", 1),
        ("in /tmp/x", 1),
        ("a full /tmp", 0),
        ("`/work/project`", 1),
        ("GET /api/users/root", 0),
        ("scripts/tmp/x and ./work/x and store/work", 0),
        ("https://example.org/home/page", 0),
        ("/workloads", 0),
    ],
)
def test_a_path_of_one_machine_is_found(text: str, count: int) -> None:
    assert len(list(machine_paths("a.md", text))) == count


def test_a_module_that_only_tests_import_is_dead() -> None:
    sources: Sequence[tuple[str, str]] = [
        ("shalott/harness/cli/main.py", "from shalott.harness import used\n"),
        ("shalott/harness/used.py", 'SCRIPT = Path(__file__).with_name("script.py")\n'),
        ("shalott/harness/script.py", "x = 1\n"),
        ("shalott/harness/started.py", "x = 1\n"),
        ("shalott/harness/unused.py", "import shalott.harness.unused\n"),
        ("tests/harness/test_unused.py", "from shalott.harness import unused\n"),
    ]
    parsed = [parse(path, text) for path, text in sources]
    found = list(
        dead_modules(
            parsed, {"shalott/cluster/images/Dockerfile": "CMD python -m shalott.harness.started"}
        )
    )
    assert found == ["shalott/harness/unused.py: nothing imports it: use it or remove it"]


def test_a_file_that_nothing_names_is_dead() -> None:
    sources = [parse("shalott/harness/report/report_page.py", "TEMPLATE = 'report.html'\n")]
    found = list(
        dead_texts(
            sources,
            {"shalott/harness/report.html": "", "shalott/harness/old.html": "", "README.md": ""},
        )
    )
    assert found == ["shalott/harness/old.html: no file names it: use it or remove it"]


@pytest.mark.explore
def test_without_git_the_same_files_are_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen = project_files()
    monkeypatch.setenv("PATH", str(tmp_path))
    project_files.cache_clear()
    try:
        assert [name for name in seen if name not in project_files()] == []
    finally:
        project_files.cache_clear()
