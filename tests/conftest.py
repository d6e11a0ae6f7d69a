"""What every test obeys: one tier each; a tier that this machine can't run is skipped, saying why.

In CI a tier must not vanish silently: with SHALOTT_REQUIRE_DOCKER=1 (or _SPARK, _BROWSER) what
would be skipped fails instead. Property tests draw the same examples on every run, unless
SHALOTT_EXPLORE=1 lets them wander.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import hypothesis
import pytest

TIERS = ("unit", "sim", "local", "browser", "docker", "spark")

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
    happens to interrupt later."""
    yield
    gc.collect()


@cache
def why_no_docker() -> str | None:
    """Why containers can't be made here, or None."""
    from shalott.cluster.docker.engine import connect
    from shalott.harness.core.errors import UsageError

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test without a tier would run in none of them; a test with two, twice."""
    astray = []
    for item in items:
        tiers = [tier for tier in TIERS if item.get_closest_marker(tier) is not None]
        if len(tiers) != 1:
            astray.append(f"{item.nodeid} has {' and '.join(tiers) or 'no tier'}")
    if astray:
        raise pytest.UsageError(
            "each test needs exactly one of the markers "
            + ", ".join(TIERS)
            + ":\n  "
            + "\n  ".join(astray)
        )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for tier, probe in PROBES.items():
        if item.get_closest_marker(tier) is None:
            continue
        reason = probe()
        if reason is None:
            continue
        if os.environ.get(f"SHALOTT_REQUIRE_{tier.upper()}") == "1":
            pytest.fail(f"{tier} tests are required here, but {reason}", pytrace=False)
        pytest.skip(reason)
