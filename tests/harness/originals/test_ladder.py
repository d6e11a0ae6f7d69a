"""The ladder's rows: whole, and plans that their releases can run."""

from __future__ import annotations

import pytest

from shalott.broker.known_bugs import CATALOGUE
from shalott.core.errors import UsageError
from shalott.core.plan import load_plan
from shalott.harness.originals.document import LADDER, PLANS, find_row, stored_plan, title_of
from shalott.harness.originals.row import RELEASES, Row, between, releases
from shalott.harness.originals.running import plan_of, plan_of_ours
from tests.tidy.sources import ROOT

pytestmark = pytest.mark.unit

WITH_PLAN = [row for row in LADDER if row.setup is not None]


def named(row: Row) -> str:
    return row.id


def test_every_bug_of_rocketmq_in_the_catalogue_has_a_row() -> None:
    ids = {row.id for row in LADDER}
    assert len(ids) == len(LADDER)
    for bug in CATALOGUE:
        if bug.id.startswith(("KB-RKT", "KB-DL")):
            assert bug.id in ids


@pytest.mark.parametrize("row", LADDER, ids=named)
def test_a_row_has_a_plan_or_says_what_it_waits_for(row: Row) -> None:
    assert bool(row.setup) + bool(row.waits_for) + bool(row.same_as) == 1
    assert title_of(row)
    assert not set(row.has) & set(row.free)


@pytest.mark.parametrize("row", WITH_PLAN, ids=named)
def test_a_plan_is_run_where_the_bug_is_and_its_control_where_it_is_not(row: Row) -> None:
    assert row.run_on in row.has and row.why and row.read_in
    shows = row.shows
    assert shows.anomalies or shows.lines or shows.route_changes
    if row.control_on:
        assert row.control_on in row.free
    assert plan_of(row, row.run_on).faults == row.faults
    control = plan_of(row, row.control_on or row.run_on, is_control=True)
    if row.control_on:
        assert control.system.parameters["version"] == row.control_on
    else:
        for name, value in row.control_policy.items():
            assert str(control.system.policy[name]).lower() == str(value).lower()
        for name, value in row.control_told.items():
            assert control.system.parameters[name.replace("-", "_")] == value


@pytest.mark.parametrize("row", [r for r in WITH_PLAN if r.ours], ids=named)
def test_the_plan_on_our_broker_differs_by_its_switch_alone(row: Row) -> None:
    on, off = plan_of_ours(row, is_on=True), plan_of_ours(row, is_on=False)
    assert on.faults == off.faults == row.faults
    assert off.system.bugs == ()
    assert (on.system.bugs, on.system.policy) != (off.system.bugs, off.system.policy)


@pytest.mark.parametrize("row", WITH_PLAN, ids=named)
def test_the_stored_plan_is_the_rows(row: Row) -> None:
    stored = load_plan(ROOT / "docs" / PLANS / f"{row.id.lower()}.json")
    assert stored.faults == stored_plan(row).faults
    assert stored.system == stored_plan(row).system
    assert stored.workload == stored_plan(row).workload


def test_repetitions_differ_by_their_seed() -> None:
    row = find_row("kb-rkt-17")
    assert plan_of(row, "5.3.3", 1).seed == plan_of(row, "5.3.3").seed + 1


def test_releases_between_two_that_need_not_be_among_them() -> None:
    assert releases("5.1.2", "5.3.0") == ("5.1.4", "5.2.0")
    assert releases() == RELEASES


def test_links_between_two_sides_go_both_ways() -> None:
    assert between("n1+n2", "n3") == (("n1", "n3"), ("n2", "n3"), ("n3", "n1"), ("n3", "n2"))


def test_an_unknown_row_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="did you mean KB-RKT-17"):
        find_row("KB-RKT-177")
