"""What every test obeys: one tier each; a tier that this machine can't run is skipped, saying why.

A file names every tier of its tests as ``pytest.mark.TIER``, so that ``-m TIER`` imports only the
files of that tier. tests/tidy/test_tiers.py holds both rules.

In CI a tier must not vanish silently: with SHALOTT_REQUIRE_DOCKER=1 (or _SPARK, _BROWSER) what
would be skipped fails instead. What is marked ``nightly(why)`` runs with SHALOTT_NIGHTLY=1 only.
Property tests draw the same examples on every run, unless
SHALOTT_EXPLORE=1 lets them wander.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import hypothesis
import pytest

TIERS = ("lint", "unit", "explore", "sim", "local", "browser", "docker", "spark")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# Whoever started this in the background may have had SIGINT ignored, which children inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("steady", derandomize=True, deadline=None, database=None)
hypothesis.settings.register_profile("explore", deadline=None, print_blob=True)
hypothesis.settings.load_profile(
    "explore" if os.environ.get("SHALOTT_EXPLORE") == "1" else "steady"
)


@pytest.fixture(autouse=True, scope="module")
def nothing_is_left_open() -> Iterator[None]:
    """What a test leaves open fails its own module, and not the test that the garbage collector
    happens to interrupt later. What is left is in use, and is not searched again."""
    yield
    gc.collect()
    gc.freeze()


@cache
def why_no_docker() -> str | None:
    """Why containers can't be made here, or None."""
    from shalott.cluster.docker.engine import connect
    from shalott.core.errors import UsageError

    try:
        connect(timeout_s=10).close()
    except UsageError as error:
        return f"{error}; see `shalott doctor`"
    return None


@cache
def why_no_spark() -> str | None:
    """Why no Spark session can be made here, or None."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed; install it with: .venv/bin/pip install -e '.[spark]'"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and Path(home, "bin", "java").exists()):
        return "no Java; install it with: sudo apt-get install -y default-jre-headless"
    return None


@cache
def why_no_browser() -> str | None:
    """Why no page can be looked at here, or None."""
    if not any(shutil.which(name) for name in BROWSERS):
        return "no chromium; install it with: sudo apt-get install -y chromium"
    if importlib.util.find_spec("websockets") is None:
        return "websockets is not installed; install it with: .venv/bin/pip install -e '.[test]'"
    return None


PROBES: Mapping[str, Callable[[], str | None]] = {
    "docker": why_no_docker,
    "spark": why_no_spark,
    "browser": why_no_browser,
}


@cache
def tiers_named(file: Path) -> tuple[str, ...]:
    """The tiers whose marker a test file's text names."""
    text = file.read_text(encoding="utf-8")
    return tuple(tier for tier in TIERS if re.search(rf"\bmark\.{tier}\b", text))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``-m TIER`` a file that does not name the tier is not imported, and neither is the
    conftest.py of a folder that holds no other file. What the command line names is collected."""
    tier = str(config.option.markexpr).strip()
    if tier not in TIERS or collection_path in _named_by_hand(config):
        return None
    if collection_path.is_dir():
        files = collection_path.rglob("test_*.py")
    elif collection_path.match("test_*.py"):
        files = iter([collection_path])
    else:
        return None
    return None if any(tier in tiers_named(file) for file in files) else True


@cache
def _named_by_hand(config: pytest.Config) -> tuple[Path, ...]:
    start = config.invocation_params.dir
    return tuple((start / argument.partition("::")[0]).resolve() for argument in config.args)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Nothing that collecting makes is garbage, and it is as old as the process: it is neither
    searched while it grows nor by the collections that follow each module."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def tiers_of(item: pytest.Item) -> tuple[str, ...]:
    """What the nearest markers say: those of a test, of its class, of its file."""
    nearest, found = None, []
    for node, marker in item.iter_markers_with_node():
        if marker.name in TIERS and nearest in (None, node):
            nearest = node
            found.append(marker.name)
    return tuple(sorted(dict.fromkeys(found), key=TIERS.index))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A test without a tier would run in none of them; a test with two, twice. With ``-m TIER``,
    tests that are of another tier than the rest of their file go."""
    astray, elsewhere = [], []
    chosen = str(config.option.markexpr).strip()
    for item in items:
        _leave_to_the_night(item)
        tiers = tiers_of(item)
        if len(tiers) != 1:
            astray.append(f"{item.nodeid} has {' and '.join(tiers) or 'no tier'}")
        elif tiers[0] not in tiers_named(item.path):
            astray.append(f"{item.nodeid}: its file does not name pytest.mark.{tiers[0]}")
        elif chosen in TIERS and chosen != tiers[0]:
            elsewhere.append(item)
    if astray:
        raise pytest.UsageError(
            "each test needs exactly one of the markers "
            + ", ".join(TIERS)
            + ":\n  "
            + "\n  ".join(astray)
        )
    if elsewhere:
        config.hook.pytest_deselected(items=elsewhere)
        gone = dict.fromkeys(elsewhere)
        items[:] = [item for item in items if item not in gone]


def _leave_to_the_night(item: pytest.Item) -> None:
    """Skip what is marked ``nightly(why)``, unless SHALOTT_NIGHTLY=1 or somebody names a test."""
    marker = item.get_closest_marker("nightly")
    is_named = item.config.option.keyword or any("::" in word for word in item.config.args)
    if marker is not None and not os.environ.get("SHALOTT_NIGHTLY") and not is_named:
        item.add_marker(pytest.mark.skip(f"{marker.args[0]}: set SHALOTT_NIGHTLY=1"))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    """Who asks for a test and gets none is told so, and the run fails."""
    is_asked = config.option.keyword or config.args_source is config.ArgsSource.ARGS
    if not is_asked or config.option.collectonly or exitstatus != pytest.ExitCode.OK:
        return
    stats = terminalreporter.stats
    if not any(stats.get(kind) for kind in ("passed", "xfailed", "xpassed")):
        why = {str(report.longrepr[-1]) for report in stats.get("skipped", ())}
        terminalreporter.write_line(f"no test ran of those asked for: {'; '.join(sorted(why))}")
        assert terminalreporter._session is not None
        terminalreporter._session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for tier, probe in PROBES.items():
        if tier not in tiers_of(item):
            continue
        reason = probe()
        if reason is None:
            continue
        if os.environ.get(f"SHALOTT_REQUIRE_{tier.upper()}") == "1":
            pytest.fail(f"{tier} tests are required here, but {reason}", pytrace=False)
        pytest.skip(reason)
