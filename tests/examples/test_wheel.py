"""A wheel built from the tree, in an environment that has nothing else, away from the checkout.

The example is installed beside it, and offers its system, workload, fault and model there; what is
run here is the wheel's own.
"""

from __future__ import annotations

import json

import pytest

from tests.examples.installed import INSTALL_WITHIN_S, Installed

pytestmark = pytest.mark.timeout(INSTALL_WITHIN_S + 300)

SHORT = ("--time-limit", "8", "--rate", "40", "--nemesis-interval", "4", "--nemesis-duration", "2")
HISTORY = """\
{:process 0, :type :invoke, :f :write, :value 1}
{:process 0, :type :ok, :f :write, :value 1}
{:process 1, :type :invoke, :f :read, :value nil}
{:process 1, :type :ok, :f :read, :value 2}
"""


def verdict_in(printed: str) -> str:
    """The line that says whether the run was valid."""
    return next(line for line in printed.splitlines() if line.startswith(("Valid", "Invalid")))


@pytest.mark.local
def test_nothing_of_the_checkout_is_used(installed: Installed) -> None:
    told = installed.run_python("import shalott; print(shalott.__file__)")
    assert told.printed.strip().endswith("site-packages/shalott/__init__.py")


@pytest.mark.local
def test_one_package_is_installed_and_no_other_name(installed: Installed) -> None:
    told = installed.run_python(
        "from importlib.metadata import files\n"
        "for name in sorted({file.parts[0] for file in files('shalott')}): print(name)"
    )
    names = [name for name in told.printed.split() if not name.endswith(".dist-info")]
    assert names == ["..", "shalott"], "the command, and the package"


@pytest.mark.local
def test_nodes_have_their_management_page(installed: Installed) -> None:
    told = installed.run_python(
        "from shalott.broker.rabbit.management.api import CONTENTS\n"
        "print(len(CONTENTS), all(CONTENTS.values()))"
    )
    assert told.printed.split() == ["12", "True"]


@pytest.mark.local
@pytest.mark.parametrize("cluster", ["sim", "local"])
def test_a_run_is_planned_done_judged_and_judged_again(installed: Installed, cluster: str) -> None:
    ran = installed.shalott(
        "test", "--profile", "safe", "--cluster", cluster, "--seed", "7", *SHORT
    )
    assert ran.code == 0, ran.printed
    (run,) = installed.runs
    assert (run / "report.html").is_file()
    again = installed.shalott("analyze")
    assert again.code == 0 and verdict_in(ran.printed) in again.printed.splitlines()


@pytest.mark.docker
@pytest.mark.nightly("its run on this machine is done by day")
def test_a_run_in_containers(installed: Installed) -> None:
    ran = installed.shalott(
        "test", "--profile", "safe", "--cluster", "docker", "--seed", "7", *SHORT
    )
    assert ran.code == 0, ran.printed


@pytest.mark.local
def test_check_and_search(installed: Installed) -> None:
    (installed.directory / "history.edn").write_text(HISTORY)
    checked = installed.shalott("check", "history.edn", "--model", "register")
    assert checked.code == 1, checked.printed
    searched = installed.shalott("search", "--seeds", "2", "--jobs", "2")
    assert searched.code == 0, searched.printed
    (summary,) = installed.directory.glob("store/search/*/summary.json")
    assert json.loads(summary.read_text())


@pytest.mark.local
def test_report_without_spark_says_what_to_install(installed: Installed) -> None:
    (installed.directory / "store").mkdir()
    told = installed.shalott("report", "--engine", "spark")
    assert told.code == 254, told.printed
    assert "shalott[spark]" in told.printed


@pytest.mark.spark
def test_report_reads_stored_runs(installed: Installed) -> None:
    ran = installed.shalott("test", "--cluster", "sim", "--profile", "safe", "--seed", "7", *SHORT)
    assert ran.code == 0, ran.printed
    told = installed.with_spark("report")
    assert told.code == 0, told.printed
