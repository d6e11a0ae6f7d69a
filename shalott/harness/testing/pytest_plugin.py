"""The pytest plug-in: a fixture that runs a plan or some options, and asserts the verdict.

pytest loads this file in every project where the package is installed, so it imports next to
nothing: what runs is harness/testing/from_pytest.py, which the first run of a session loads.
docs/how-to/test-with-pytest.md is the manual.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from shalott.core.errors import MissingHere, ShalottError, UsageError, sentence_of

if TYPE_CHECKING:
    from shalott.core.plan import Plan
    from shalott.harness.testing.from_pytest import OptionValue

WORLD_MARK, NEMESES_MARK = "shalott_world", "shalott_nemeses"
CLUSTER, NEMESIS = "shalott_cluster", "shalott_nemesis"  # fixtures, and ids of parametrized tests
NAME_MAX = 100
FINDINGS_MAX = 12


class WrongVerdict(AssertionError):
    """A run did not end as its test wants."""

    __module__ = "shalott"  # as pytest's summary shows it


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What became of a run. ``valid``: True, False or "unknown".

    ``anomalies``: how many of each kind were found, tolerated ones too; ``broken``: the kinds that
    made the run invalid. ``command`` repeats it, ``directory`` has its report.html.
    """

    valid: bool | str
    headline: str
    anomalies: Mapping[str, int]
    broken: tuple[str, ...]
    findings: tuple[str, ...]
    directory: Path
    seed: int
    command: str
    interrupted: bool = False

    def assert_valid(self) -> None:
        """Fail the test unless the run was valid; one that proves nothing is not."""
        __tracebackhide__ = True
        if self.valid is not True:
            raise WrongVerdict(self.headline)

    def assert_invalid(self, *anomalies: str) -> None:
        """Fail the test unless the run was invalid, and because of each of these anomalies."""
        __tracebackhide__ = True
        missing = [kind for kind in anomalies if kind not in self.broken]
        if self.valid is not False or missing:
            wanted = f" with {' and '.join(anomalies)}" if anomalies else ""
            found = f" (found: {', '.join(self.broken)})" if self.valid is False else ""
            raise WrongVerdict(f"not invalid{wanted}{found}: {self.headline}")

    def told(self) -> str:
        """The lines of a failed test."""
        lines = [self.headline, *(f"  {each}" for each in self.findings[:FINDINGS_MAX])]
        if len(self.findings) > FINDINGS_MAX:
            lines.append(f"  and {len(self.findings) - FINDINGS_MAX} more in the report")
        report = self.directory / "report.html"
        lines.append(f"Report: {report if report.exists() else self.directory}")
        return "\n".join([*lines, f"Repeat: {self.command}"])


class Shalott:
    """The fixture. What a test's marks and pytest's options say stands in for what ``run`` is not
    told."""

    def __init__(self, node: pytest.Item, place: Path, defaults: Mapping[str, OptionValue]) -> None:
        self.runs: list[Run] = []
        self.refusal: ShalottError | None = None
        self._node = node
        self._place = place
        self._defaults = defaults

    def run(self, *, plan: Path | Plan | None = None, **options: OptionValue) -> Run:
        """Run what ``shalott test`` would with these options, a '_' for each '-', or a plan.

        Raises UsageError in one sentence: such a run can't be.
        """
        __tracebackhide__ = True
        from shalott.harness.testing.from_pytest import run_options

        if plan is None and "plan" not in options:
            options = {**self._defaults, **options}
        shows = self._node.config.getoption("capture") == "no"
        try:
            for run in run_options(options, plan, self._place, shows=shows):
                self._note(run)
                if run.interrupted:
                    raise KeyboardInterrupt
        except MissingHere as error:
            _lack(self._node.config, sentence_of(error))
        except ShalottError as error:
            self.refusal = error
            raise
        return self.runs[-1]

    def _note(self, run: Run) -> None:
        """In the JUnit file, by number if there are several."""
        self.runs.append(run)
        number = f"-{len(self.runs)}" if len(self.runs) > 1 else ""
        told = {"run": run.directory, "seed": run.seed, "valid": run.valid, "repeat": run.command}
        self._node.user_properties += [
            (f"shalott-{name}{number}", str(value)) for name, value in told.items()
        ]


FIXTURE = pytest.StashKey[Shalott]()


def _lack(config: pytest.Config, sentence: str) -> None:
    """What this machine has not is skipped, or fails where it is required."""
    __tracebackhide__ = True
    required = os.environ.get("SHALOTT_REQUIRE_WORLDS") == "1"
    if required or config.getini("shalott_missing") == "fail":
        pytest.fail(f"required here, but missing: {sentence}", pytrace=False)
    pytest.skip(sentence)


@pytest.fixture
def shalott_cluster(request: pytest.FixtureRequest) -> str | None:
    """The world that the test runs in: of its mark, or of --shalott-cluster."""
    named: Sequence[str] = _named(request.config)
    return named[0] if named else None


@pytest.fixture
def shalott_nemesis() -> str | None:
    """The nemesis that the test runs with, of its mark."""
    return None


@pytest.fixture
def shalott(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    shalott_cluster: str | None,
    shalott_nemesis: str | None,
) -> Shalott:
    """Runs clusters, breaks them, and judges them: ``shalott.run(...).assert_valid()``."""
    given = request.config.getoption("shalott_store")
    store = request.config.invocation_params.dir / given if given else None
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name).strip("-._")[:NAME_MAX]
    defaults: dict[str, OptionValue] = {"name": name.rstrip("-._") or "test"}
    if shalott_cluster is not None:
        defaults["cluster"] = shalott_cluster
    if shalott_nemesis is not None:
        defaults["nemesis"] = shalott_nemesis
    made = Shalott(request.node, store or tmp_path_factory.getbasetemp() / "shalott", defaults)
    request.node.stash[FIXTURE] = made
    return made


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("shalott", "Shalott, which breaks message brokers")
    group.addoption(
        "--shalott-store",
        metavar="DIR",
        help="keep the runs there, rather than with pytest's temporary directories",
    )
    group.addoption(
        "--shalott-cluster",
        metavar="WORLD,...",
        default="",
        help="run in these worlds: sim, local, docker, ssh; of those that a test is marked with,"
        " only in these",
    )
    parser.addini(
        "shalott_missing",
        "what becomes of a test whose world this machine has not: skip or fail",
        default="skip",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{WORLD_MARK}(*worlds): run in each of these worlds: sim, local, docker, ssh"
    )
    config.addinivalue_line(
        "markers",
        f"{NEMESES_MARK}(*names): run once with each nemesis, such as partition-*; without names"
        " with each usual one",
    )
    if (word := config.getini("shalott_missing")) not in ("skip", "fail"):
        raise pytest.UsageError(f"shalott_missing = {word}: give skip or fail")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = metafunc.fixturenames
    if CLUSTER in names and not _is_parametrized(metafunc) and (worlds := _worlds(metafunc)):
        metafunc.parametrize(CLUSTER, worlds)
    mark = metafunc.definition.get_closest_marker(NEMESES_MARK)
    if mark is None or NEMESIS not in names:
        return
    from shalott.harness.testing.from_pytest import nemeses_named

    try:
        metafunc.parametrize(NEMESIS, nemeses_named(mark.args))
    except UsageError as error:
        raise pytest.Collector.CollectError(f"{NEMESES_MARK}: {error}") from error


def _is_parametrized(metafunc: pytest.Metafunc) -> bool:
    """Whether the test names its worlds itself."""
    marks = metafunc.definition.iter_markers("parametrize")
    return any(CLUSTER in str(mark.args[:1]) for mark in marks)


def _worlds(metafunc: pytest.Metafunc) -> list[object]:
    """Those of the mark; without one those of --shalott-cluster, if they are several."""
    mark = metafunc.definition.get_closest_marker(WORLD_MARK)
    named = _named(metafunc.config)
    if mark is None:
        return [*named] if len(named) > 1 else []
    elsewhere = pytest.mark.skip(f"--shalott-cluster is {','.join(named)}")
    return [
        pytest.param(world, marks=elsewhere if named and world not in named else ())
        for world in mark.args
    ]


def _named(config: pytest.Config) -> list[str]:
    words = str(config.getoption("shalott_cluster")).split(",")
    return [word.strip() for word in words if word.strip()]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A wrong verdict and a refusal are sentences, without a traceback or what the harness logged;
    of each run of a failed test there is a section."""
    report = yield
    made = item.stash.get(FIXTURE, None)
    if made is None or call.when != "call" or not report.failed or call.excinfo is None:
        return report
    error = call.excinfo.value
    if isinstance(error, WrongVerdict) or error is made.refusal:
        report.longrepr = call.excinfo.getrepr(style="value", chain=False)
        report.sections = [each for each in report.sections if " log " not in each[0]]
    report.sections += [("shalott", run.told()) for run in made.runs]
    return report
