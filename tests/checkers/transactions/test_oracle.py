"""The oracle says what the literature says, and its two decisions agree."""

from __future__ import annotations

import random

import pytest

from tests.checkers.transactions.histories import SEMANTICS, Semantics
from tests.checkers.transactions.mutations import CASES, Case, disturbed, fresh_processes, planted
from tests.checkers.transactions.oracle import (
    LEVELS,
    STATE_LEVELS,
    kept_by_states,
    kept_by_visibility,
    levels_kept,
)
from tests.checkers.transactions.sound import DATABASES, Clients, run

pytestmark = pytest.mark.unit

# The weakest levels that each forbids, by the definitions of Adya (1999), of Cerone et al. (2015),
# and of Elle's sessions and real time. A realtime kind breaks no level without real time.
FORBIDS = {
    "G0": {"read-uncommitted"},
    "G0-process": {"strong-session-read-uncommitted"},
    "G0-realtime": {"strong-read-uncommitted"},
    "G1a": {"read-committed"},
    "G1b": {"read-committed"},
    "G1c": {"read-committed"},
    "G1c-process": {"strong-session-read-committed"},
    "G1c-realtime": {"strong-read-committed"},
    "G-single-item": {"consistent-view"},
    "G-single-item-process": {"strong-session-snapshot-isolation"},
    "G-single-item-realtime": {"strong-snapshot-isolation"},
    "G-nonadjacent-item": {"snapshot-isolation"},
    "G-nonadjacent-item-process": {"strong-session-snapshot-isolation"},
    "G-nonadjacent-item-realtime": {"strong-snapshot-isolation"},
    "G2-item": {"serializable"},
    "G2-item-process": {"strong-session-serializable"},
    "G2-item-realtime": {"strict-serializable"},
    "lost-update": {"cursor-stability", "update-atomic"},
    "internal": {"read-atomic"},
    "future-read": {"read-committed"},
    "dirty-update": {"read-committed"},
    "duplicate-elements": {"read-uncommitted"},
    "incompatible-order": {"read-committed"},
}
KEEPS = {
    "G0-process": {"serializable"},
    "G0-realtime": {"strong-session-serializable"},
    "G1a": {"strong-read-uncommitted"},
    "G1b": {"strong-read-uncommitted"},
    "G1c": {"strong-read-uncommitted"},
    "G1c-process": {"serializable", "strong-read-uncommitted"},
    "G1c-realtime": {"strong-session-serializable", "strong-read-uncommitted"},
    "G-single-item": {"strong-read-committed"},
    "G-single-item-process": {"serializable", "strong-read-committed"},
    "G-single-item-realtime": {"strong-session-serializable", "strong-read-committed"},
    "G-nonadjacent-item": {"parallel-snapshot-isolation", "consistent-view"},
    "G-nonadjacent-item-process": {"serializable", "strong-read-committed"},
    "G-nonadjacent-item-realtime": {"strong-session-serializable", "strong-read-committed"},
    "G2-item": {"strong-snapshot-isolation"},
    "G2-item-process": {"serializable", "strong-snapshot-isolation"},
    "G2-item-realtime": {"strong-session-serializable", "strong-snapshot-isolation"},
    "lost-update": {"strong-read-committed", "causal-cerone"},
    "internal": {"strong-read-committed"},
    "future-read": {"strong-read-uncommitted"},
    "dirty-update": {"strong-read-uncommitted"},
}
# The order of a register's versions is not to be seen: by these definitions there is one that does
# without the cycle, or no cycle of writes alone.
ONLY_IF_WRITES_FOLLOW_READS = tuple(case for case in CASES if case.options)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_case_breaks_what_its_anomaly_forbids_and_its_relative_nothing(case: Case) -> None:
    kept = levels_kept(case.transactions(), case.semantics)
    assert levels_kept(case.transactions(sound=True), case.semantics) == set(LEVELS)
    assert "strict-serializable" not in kept
    if case not in ONLY_IF_WRITES_FOLLOW_READS:
        assert not FORBIDS[case.kind] & kept
        assert KEEPS.get(case.kind, set()) <= kept


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_names_times_and_innocent_reads_change_nothing(case: Case) -> None:
    rng = random.Random(case.name)
    for sound in (False, True):
        alone = planted(case, (), rng, sound=sound)
        plain = case.transactions(sound=sound)
        assert levels_kept(alone, case.semantics) == levels_kept(plain, case.semantics)
        assert fresh_processes(alone)


def test_there_are_cases_of_every_kind() -> None:
    kinds = {(case.semantics, case.kind) for case in CASES}
    assert len(CASES) >= 40 and len(kinds) >= 40
    assert {kind for _, kind in kinds} == {*FORBIDS, "cyclic-versions"}


@pytest.mark.parametrize("semantics", SEMANTICS)
@pytest.mark.parametrize("database", DATABASES)
def test_a_database_keeps_its_level_and_the_decisions_agree(
    database: str, semantics: Semantics
) -> None:
    make, level = DATABASES[database]
    for seed in range(12):
        rng = random.Random(f"{database} {semantics} {seed}")
        clients = Clients(transactions=rng.randint(2, 5), keys=rng.randint(1, 3), crash=0.05)
        history = run(make, semantics, rng, clients)
        by_visibility = kept_by_visibility(history, semantics)
        assert fresh_processes(history)
        assert not level or level in by_visibility | kept_by_states(history, semantics)
        other = disturbed(history, semantics, rng)
        for each in (history, other):
            by_visibility = kept_by_visibility(each, semantics)
            assert kept_by_states(each, semantics) == by_visibility & set(STATE_LEVELS)


def test_what_crashed_may_have_happened_and_what_failed_did_not() -> None:
    crashed = Case("", "", "list-append", "0 0? x+1 / 1 2-3 x[1] / 2 4-5 x[]", ("x[]", "x[1]"))
    assert "serializable" in levels_kept(crashed.transactions(), "list-append")
    assert "strict-serializable" not in levels_kept(crashed.transactions(), "list-append")
    unseen = Case("", "", "list-append", "0 0? x+1 / 1 2-3 x[]", ("x[]", "x[1]"))
    for sound in (False, True):
        assert levels_kept(unseen.transactions(sound=sound), "list-append") == set(LEVELS)
