"""The pages of docs/reference that are rendered from records are what these say."""

from __future__ import annotations

from pathlib import Path

import pytest

from shalott.checkers.judge import JUDGES, JudgeOfRuns, find_judge
from shalott.cluster.systems.record import SYSTEMS
from shalott.core.parameters import Flag
from shalott.harness.cli.explain import (
    JUDGED,
    checkers_of,
    fault_text,
    own_checker_text,
    parameter_text,
    system_text,
)
from shalott.harness.cli.markdown import item, wrapped
from shalott.harness.cli.reference import PAGES, write_pages
from shalott.nemesis.record import FAULTS
from shalott.workloads.record import WORKLOADS
from tests.docs.pages import DOCS

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_records_say(name: str) -> None:
    """To write all anew: python -m shalott.harness.cli.reference."""
    assert (DOCS / "reference" / name).read_text(encoding="utf-8") == PAGES[name]()


def test_pages_are_written(tmp_path: Path) -> None:
    write_pages(tmp_path / "made")
    assert {each.name for each in (tmp_path / "made").iterdir()} == set(PAGES)


def test_every_record_is_on_its_page() -> None:
    for page, names in {
        "systems.md": SYSTEMS.names(),
        "workloads.md": WORKLOADS.names(),
    }.items():
        assert all(f"\n## {name}\n" in PAGES[page]() for name in names)
    faults = PAGES["faults.md"]()
    assert all(f"\n- `{name}`: " in faults for name in FAULTS.names())


def test_every_checker_of_a_workload_has_words() -> None:
    names = set()
    for record in WORKLOADS.records():
        for checker in checkers_of(record):
            assert own_checker_text(checker).startswith(f"- `{checker.name}`: ")
            names.add(checker.name)
    assert set(JUDGED) <= names


@pytest.mark.parametrize("name", JUDGES)
def test_a_judge_of_runs_is_told_by_what_it_judges(name: str) -> None:
    told = " ".join(own_checker_text(JudgeOfRuns(name)).split())
    assert told.startswith(f"- `{name}`: {find_judge(name).summary}"), told
    assert find_judge(name).source in told.replace("\n", " ")


def test_a_fault_says_where_it_can_be_made_and_of_whom_it_can_be_asked() -> None:
    assert "Needs `clock`; only in `sim`, `docker`, `ssh`." in fault_text(FAULTS.find("clock-jump"))
    assert "Only of `master-slave`, `rocketmq`." in " ".join(
        fault_text(FAULTS.find("failover")).split()
    )
    assert fault_text(FAULTS.find("kill")).endswith(" Needs `kill`.")


def test_a_system_says_what_its_profiles_set() -> None:
    text = " ".join(system_text(SYSTEMS.find("mirrored")).split())
    assert "Profile `safe` sets: `partition_mode=pause_minority`" in text


def test_parameters_are_flags() -> None:
    plain = Flag("hold_ms", "hold", "duration", 200, "Held so long.", ())
    assert parameter_text(plain) == "- `--hold` TIME (`200ms`): Held so long."
    switch = Flag("durable", "durable", "flag", True, "Queues stay.", ())
    assert parameter_text(switch) == "- `--durable`, `--no-durable` (`--durable`): Queues stay."
    choice = Flag("reads", "reads", "choice", "leader", "", ("leader", "local"))
    assert parameter_text(choice) == "- `--reads` WORD (`leader`): One of leader, local."


def test_no_wrapped_line_looks_like_something_else() -> None:
    text = wrapped("word " * 23 + "- 4 + 5 # 6 " * 12)
    assert all(len(line) <= 120 and line[0] not in "-+#" for line in text.splitlines())
    assert item("a " * 100).splitlines()[1].startswith("  a")
