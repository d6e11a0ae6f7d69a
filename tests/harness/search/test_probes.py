"""Probes: they count what a run comes to, in processes of their own, and change nothing else."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from shalott.harness.run.simulate import simulate
from shalott.harness.scenarios.swarm import draw_plan, plain_subject
from shalott.harness.search.campaign import open_campaign
from shalott.harness.search.door import SimulatedRuns
from shalott.harness.search.place import Directory
from shalott.harness.search.probes import Probes, feature, functions_in, probed, unpacked
from shalott.harness.search.run_search import Tally, run_search
from shalott.harness.search.search import SearchRequest, plan_search

SOURCE = textwrap.dedent(
    '''
    def grade(n):
        """Of a number."""
        if n > 3:
            return "much"
        elif n > 1:
            return "some"
        else:
            return "little"

    class Box:
        def each(self, items):
            for item in items:
                try:
                    yield grade(item)
                except TypeError:
                    yield "none"

        def never(self): ...
    '''
)


class Quiet:
    def show(self, tally: Tally) -> None:
        return

    def say(self, line: str) -> None:
        return


@pytest.mark.unit
def test_functions_and_branches_are_counted() -> None:
    probes = Probes()
    scope: dict[str, object] = {"__probe_counts__": probes.counts}
    exec(compile(probed(ast.parse(SOURCE), "m", probes), "m.py", "exec"), scope)
    box = scope["Box"]
    assert isinstance(box, type)
    assert list(box().each([5, 2, 0, None])) == ["much", "some", "little", "none"]
    found = set(probes.features())
    names = (
        "m:grade",
        "m:grade@5",
        "m:grade@7",
        "m:grade@9",
        "m:Box:each",
        "m:Box:each@14",
        "m:Box:each@17",
    )
    assert all(feature(name) in found for name in names)
    assert feature("m:Box:never") not in found
    few = set(probes.features())
    probes.clear()
    assert list(probes.features()) == []
    list(box().each([5] * 40))
    assert set(probes.features()) - few, "how often makes a difference"


@pytest.mark.unit
def test_functions_that_do_nothing_are_not_missed() -> None:
    assert functions_in(SOURCE, "m") == ["m:grade", "m:Box:each"]


@pytest.mark.unit
def test_a_module_that_is_there_already_is_too_late() -> None:
    program = (
        "import shalott.broker.base.events\n"
        "from shalott.harness.search import probes\n"
        "probes.put_in_force(())\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "was imported before it could be probed" in ran.stderr


@pytest.mark.explore
def test_a_probed_run_is_the_same_run(tmp_path: Path) -> None:
    request = SearchRequest(
        system="dledger", seeds="2", jobs=1, corpus=str(tmp_path / "corpus"), store=str(tmp_path)
    )
    search = plan_search(request)
    summary, _ = run_search(search, request, SimulatedRuns(simulate), Quiet(), command="search")
    assert not summary.errors and summary.features > 1000 and summary.corpus
    campaign = open_campaign(Directory(tmp_path), search.subject.name, search.header, fresh=False)
    subject = plain_subject("dledger", "safe")
    for seed, report in campaign.reports.items():
        assert report.digest == simulate(draw_plan(subject, seed)).digest
        assert feature(">role master") in unpacked(report.features), "what nodes tell"
    campaign.close()
