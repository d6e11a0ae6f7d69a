"""Plug-ins are packages of their own: they know Shalott by shalott.api alone."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache

import pytest

from shalott.checkers.checker import Checker
from shalott.checkers.runs.compose import extra_checkers
from shalott.cluster.systems.record import SYSTEMS
from shalott.core.doors import load_module
from shalott.core.parameters import flags_of
from shalott.core.plan import Plan
from shalott.core.published import FINDINGS, PublishedFinding
from shalott.harness.cli.published import plan_of
from shalott.harness.matrix.cells import expand
from shalott.harness.matrix.definition import read_matrix
from shalott.harness.run import backends
from shalott.workloads.record import WORKLOADS
from tests.plug_ins import forget
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.unit


def test_the_plug_ins_import_nothing_else_of_shalott() -> None:
    sources = list((ROOT / "plugins").glob("*/*/*.py"))
    assert sources
    for source in sources:
        for line in source.read_text().splitlines():
            if line.startswith(("import shalott.", "from shalott.")):
                assert line.split()[1] == "shalott.api", source


@pytest.fixture
def findings() -> Iterator[tuple[PublishedFinding, ...]]:
    for path in sorted((ROOT / "plugins").glob("*/pyproject.toml")):
        groups = tomllib.loads(path.read_text())["project"]["entry-points"].values()
        for target in (target for group in groups for target in group.values()):
            load_module(target.partition(":")[0])
    yield tuple(FINDINGS.records())
    forget()


@pytest.mark.usefixtures("findings")  # which loads them all
def test_their_night_has_sixty_runs_of_each_under_safe() -> None:
    cells = expand(read_matrix(ROOT / "plugins" / "nightly.toml").definition, "a-night").cells
    runs: dict[str, int] = {}
    for cell in cells:
        assert cell.request.profile == "safe"
        runs[cell.request.system] = runs.get(cell.request.system, 0) + len(cell.seeds)
    systems = ("artemis", "etcd", "kafka", "nats", "rabbitmq4", "redis", "valkey")
    assert runs == dict.fromkeys(systems, 60)


@cache
def words_of_checkers() -> frozenset[str]:
    """Every text that code of ours or of a plug-in's holds, findings left out."""
    sources = [
        path
        for pattern in ("shalott/**/*.py", "shalott/**/*.c", "plugins/*/*/*.py")
        for path in ROOT.glob(pattern)
        if path.name != "findings.py"
    ]
    return frozenset(
        word for path in sources for word in re.findall(r'"([^"\n]+)"', path.read_text())
    )


def checkers_of(plan: Plan) -> list[Checker]:
    return [*WORKLOADS.find(plan.workload.name).checkers(plan), *extra_checkers(plan)]


def test_what_must_be_seen_is_what_a_checker_of_its_plan_can_say(
    findings: tuple[PublishedFinding, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row whose checker or anomaly is misspelt would never be found, and look mended. A cycle's
    kind may end with the order that it needs."""
    # Plans of systems in containers are made here, and none is run.
    monkeypatch.setattr(backends, "docker_obstacle", lambda: None)
    assert len(findings) > 30
    wrong = []
    for finding in findings:
        names = {each.name for each in checkers_of(plan_of(finding, finding.release, 1))}
        for seen in finding.seen:
            if seen.checker and seen.checker not in names:
                wrong.append(f"{finding.name}: {seen.checker} of {sorted(names)}")
            wrong += [
                f"{finding.name}: {word}"
                for word in seen.kinds
                if re.sub(r"-(?:realtime|process)$", "", word) not in words_of_checkers()
            ]
    assert not wrong, "\n".join(wrong)


def test_a_flag_is_a_switch_for_all_or_for_none(findings: tuple[PublishedFinding, ...]) -> None:
    """All that are installed share one command line, on which a word has one meaning."""
    kinds: dict[str, dict[bool, list[str]]] = {}
    for record in SYSTEMS.records():
        for flag in flags_of(record.parameters):
            kinds.setdefault(flag.name, {}).setdefault(flag.kind == "flag", []).append(record.name)
    assert {name: by for name, by in kinds.items() if len(by) > 1} == {}
