"""Functions that no search enters, and their reasons."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
import pytest

from shalott.harness.cli.search import closing_lines
from shalott.harness.search import unentered
from shalott.harness.search.campaign import Header
from shalott.harness.search.place import Directory
from shalott.harness.search.probes import feature
from shalott.harness.search.search import SearchRequest, plan_search, workloads_of
from shalott.harness.search.summary import Summary
from shalott.harness.search.unentered import covers, is_below, names_of, reach_of
from shalott.harness.search.unentered_reasons import REASONS, Reason

pytestmark = pytest.mark.unit

MODULE = "rocket.autoswitch.epochs"


def seen(*names: str) -> set[int]:
    return {feature(f"shalott.broker.{name}") for name in names}


@cache
def every_name() -> tuple[str, ...]:
    return tuple(name for _, _, names in unentered.functions() for name in names)


def summary(**said: object) -> Summary:
    counts = dict.fromkeys(("wanted", "ran", "valid", "invalid", "unknown", "repeated"), 1)
    counts |= dict.fromkeys(("virtual_s", "wall_s", "cpu_s", "callbacks", "segments"), 1)
    empty = dict.fromkeys(("errors", "classes", "unknown_seeds", "mismatches", "sometimes"), {})
    header = Header(subject="s", code="c")
    rest = {"command": "search", "header": header, "seeds": "1", "never": (), "buggified": {}}
    return msgspec.convert({**counts, **empty, **rest, **said}, Summary)


def test_what_no_run_came_to_is_listed() -> None:
    one, two = f"{MODULE}:without_suffix", f"{MODULE}:EpochFileCache:of_epoch"
    found = reach_of(seen(MODULE, one, two), "controller/safe")
    assert found.unentered and all(name.startswith(f"{MODULE}:") for name in found.unentered)
    assert one not in found.unentered and not found.outdated
    assert not reach_of(seen(MODULE, one), "controller/safe").unentered


def test_what_has_a_reason_is_counted_and_a_reason_that_does_not_hold_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = Reason("It is so.", f"{MODULE}:without_suffix|of_epoch", but=("dledger",))
    monkeypatch.setattr(unentered, "REASONS", (here,))
    entered = seen(MODULE, f"{MODULE}:without_suffix", f"{MODULE}:EpochFileCache:of_epoch")
    found = reach_of(entered, "controller/safe")
    assert found.explained == 1 and f"{MODULE}:of_epoch" not in found.unentered
    assert found.outdated == (f"{MODULE}:without_suffix",)
    elsewhere = reach_of(entered, "dledger/safe")
    assert not elsewhere.explained and not elsewhere.outdated


def test_every_reason_is_a_sentence_about_functions_that_there_are() -> None:
    functions = every_name()
    for reason in REASONS:
        assert reason.why.endswith(".") and len(reason.why.split()) > 4
        for name in names_of(reason):
            assert any(is_below(each, name) for each in functions), f"there is no {name}"


def test_a_function_has_one_reason() -> None:
    """Or none, or one beside those of some systems."""
    everywhere = [reason for reason in REASONS if not reason.but]
    for function in every_name():
        found = [reason.why for reason in everywhere if covers(reason, function)]
        assert len(found) < 2, (function, found)


def test_the_workloads_of_a_system_are_dealt_in_turn() -> None:
    search = plan_search(SearchRequest(system="dledger", workload="all", seeds="9"))
    dealt = [search.plans.plan(seed).workload.name for seed in search.seeds]
    assert set(dealt) == {*workloads_of("dledger")} and dealt[:4] == dealt[4:8]
    one = plan_search(SearchRequest(system="dledger", workload=dealt[0], seeds="9"))
    assert one.plans.plan(1).faults == search.plans.plan(1).faults
    assert one.header.subject != search.header.subject


def test_a_bug_is_switched_on_in_every_workload() -> None:
    bug = "KB-DL-11"  # which has no scenario
    search = plan_search(SearchRequest(system="dledger", workload="all", bug=bug, seeds="4"))
    assert all(search.plans.plan(seed).system.bugs == (bug,) for seed in search.seeds)


def test_what_was_not_entered_is_named(tmp_path: Path) -> None:
    found = summary(unentered=("a:b", "a:c"), explained=3, outdated=("a:d",), corpus=2)
    said = list(closing_lines(found, Directory(tmp_path)))
    assert any(" 3 were never entered for a reason, 2 for none" in line for line in said)
    assert "  never entered: a:b" in said
    assert "  has a reason, yet was entered: a:d" in said
