"""I1 to I4: one planted failure of each kind, alone, and what is no failure: late lines, restarts,
lines that were never written, settings that promise nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shalott.checkers.checker import Checker, Result
from shalott.checkers.mastership import acked_copies as copies
from shalott.checkers.mastership import masters_logs as logs
from shalott.checkers.mastership.invariants import (
    AckedOnMembers,
    MasterFromSet,
    MasterHasAcked,
    OneMasterAnEpoch,
)
from tests.checkers.histories import Story
from tests.checkers.mastership.elections_story import (
    began,
    changed,
    elected,
    good,
    heard_set,
)

pytestmark = pytest.mark.unit

ON_SET = AckedOnMembers(promised=True, by_set=True)
ON_TWO = AckedOnMembers(promised=True, nodes=3, copies=2)
HAS_ACKED = MasterHasAcked(promised=True)
ALL: tuple[Checker, ...] = (ON_SET, ON_TWO, MasterFromSet(), HAS_ACKED, OneMasterAnEpoch())


def check(judge: Checker, told: Story) -> Result:
    return judge.check(told.history())


def kinds(result: Result) -> list[str]:
    return [anomaly.kind for anomaly in result.anomalies]


def short_holder() -> Story:
    return good().acked("n2", 40, 41, 2, end=2500, holders=[3])


def laggard() -> Story:
    return good().observe("n1", 50, "slave", 2, end_offset=1599)


def two_laggards() -> Story:
    told = good().observe("n1", 50, "slave", 2, end_offset=1000)
    return told.observe("n3", 51, "slave", 2, end_offset=1200)


def short_master() -> Story:
    return began(good(), 61, "n3", 3, 2399, (1, 0), (2, 800))


def other_bytes() -> Story:
    return began(good(), 61, "n3", 3, 5000, (1, 0), (3, 2000))


def own_cut() -> Story:
    return good().event("n1", 21, "truncated", "slave", 2, incarnation=2, to=699)


def answers_beside() -> Story:
    told = good().observe("n2", 30, "master", 2)
    return told.observe("n3", 31, "master", 2)


PLANTED: dict[str, tuple[Checker, Callable[[], Story]]] = {
    "acked-without-member": (ON_SET, short_holder),
    "member-lacks-acked": (ON_SET, laggard),
    "too-few-copies": (ON_TWO, two_laggards),
    "elected-outside-set": (MasterFromSet(), lambda: elected(good(), 40, "n3", 3, 5)),
    "acked-missing-at-master": (HAS_ACKED, short_master),
    "acked-replaced-at-master": (HAS_ACKED, other_bytes),
    "acked-cut": (HAS_ACKED, own_cut),
    "two-masters-in-epoch": (OneMasterAnEpoch(), lambda: good().role("n3", 30, "master", 2)),
    "fenced-alteration": (
        OneMasterAnEpoch(), lambda: changed(good(), 30, ["n1", "n3"], "n1", 5),
    ),
    "set-without-master": (
        OneMasterAnEpoch(), lambda: changed(good(), 30, ["n1", "n3"], "n2", 5),
    ),
}  # fmt: skip


@pytest.mark.parametrize("judge", ALL, ids=lambda judge: judge.name)
def test_a_failover_from_the_set_keeps_all_of_them(judge: Checker) -> None:
    result = check(judge, good())
    assert result.valid is True and not result.anomalies and not result.notes
    assert result.counts["judged-count"] > 0


@pytest.mark.parametrize("judge", ALL, ids=lambda judge: judge.name)
def test_of_what_nobody_tells_nothing_is_judged(judge: Checker) -> None:
    assert check(judge, Story().phases()).valid == "unknown"


@pytest.mark.parametrize("kind", PLANTED)
def test_each_planted_failure_is_found_alone(kind: str) -> None:
    judge, tell = PLANTED[kind]
    told = tell()
    result = check(judge, told)
    assert kinds(result) == [kind]
    assert result.valid is False and result.counts[f"{kind}-count"] == 1
    (anomaly,) = result.anomalies
    assert " s, " in anomaly.summary and anomaly.detail["events"] and anomaly.detail["nodes"]
    others = [one for one in ALL if one.name != judge.name]
    assert all(check(other, told).valid is True for other in others)


def test_every_kind_is_planted() -> None:
    told = {*copies.KINDS, *logs.KINDS}
    assert told < set(PLANTED)


def test_sentences_are_in_the_domains_words() -> None:
    (anomaly,) = check(*_planted("elected-outside-set")).anomalies
    assert anomaly.summary == (
        "n3 was elected master of q for epoch 3 from outside of the SyncStateSet {n2, n1};"
        " at 40.0 s, after 1 kill n1"
    )
    (anomaly,) = check(*_planted("acked-missing-at-master")).anomalies
    assert anomaly.summary.startswith(
        "n2 had acknowledged the log of q up to 2400 in epoch 2, and n3 is its master in epoch 3"
        " with a log that ends at 2399; at 61.0 s"
    )


def _planted(kind: str) -> tuple[Checker, Story]:
    judge, tell = PLANTED[kind]
    return judge, tell()


# -- I1 --------------------------------------------------------------------------------------------


def test_a_set_that_changes_meanwhile_is_no_witness() -> None:
    """n3 joins while messages that it does not have are being acknowledged."""
    told = good().acked("n2", 39.9, 40.05, 2, end=2500, holders=[1])
    assert check(ON_SET, changed(told, 40, ["n1", "n2", "n3"], "n2", 5, "n3")).valid is True
    told.acked("n2", 40.2, 40.3, 2, end=2600, holders=[1])
    assert kinds(check(ON_SET, told)) == ["acked-without-member"]


def test_a_paused_masters_late_line_is_no_witness_of_a_set_that_changed_since() -> None:
    """Taken before the change, told long after it."""
    told = changed(good(), 40, ["n1", "n2", "n3"], "n2", 5, "n3")
    told.acked("n2", 39, 48, 2, end=2600, holders=[1])
    assert check(ON_SET, told).valid is True


def test_a_set_whose_successor_nobody_told_does_not_count() -> None:
    """The controllers' leader took n1 out and died before it could say so."""
    told = changed(good(), 50, ["n2", "n3"], "n2", 6, "n1", incarnation=2)
    told.acked("n2", 40, 41, 2, end=2500, holders=[3])
    assert check(ON_SET, told).valid is True


@pytest.mark.parametrize("fault", ["kill", "power", "pause", "disk-full"])
def test_a_set_stands_until_its_teller_may_have_died(fault: str) -> None:
    told = short_holder().fault(2, fault, 35, 45, ["n3"])
    assert check(ON_SET, told).valid is True
    assert check(ON_SET, short_holder().fault(2, fault, 35, 45, ["n1"])).valid is False


def test_a_set_stands_until_its_tellers_last_word_if_it_crashed() -> None:
    told = short_holder().role("n3", 39, "slave", 2).role("n3", 55, "slave", 2, incarnation=2)
    assert check(ON_SET, told).valid is True


def test_the_masters_own_set_counts_beside_the_controllers() -> None:
    """n3 is taken out of the set, and the master has not heard of that yet."""
    told = changed(good(), 31, ["n1", "n2", "n3"], "n2", 5, "n3")
    heard_set(changed(told, 33, ["n1", "n2"], "n2", 6, "n3"), 32, "n2", [1, 2, 3], 2)
    told.acked("n2", 36, 37, 2, end=2500, holders=[1])
    (anomaly,) = check(ON_SET, told).anomalies
    assert "n3, a member of the SyncStateSet" in anomaly.summary
    told = heard_set(good(), 36.5, "n2", [1, 2, 3], 2)
    assert check(ON_SET, told.acked("n2", 36, 37, 2, end=2500, holders=[1])).valid is True


@pytest.mark.parametrize(("set_epoch", "valid"), [(6, True), (5, False), (0, False)])
def test_a_set_ends_when_the_master_hears_of_the_next_one(set_epoch: int, valid: bool) -> None:
    """n3 was taken out; who told the master leads no more, and the next leader says so late."""
    told = changed(good(), 31, ["n1", "n2", "n3"], "n2", 5, "n3")
    heard_set(told, 33, "n2", [1, 2], 2, set_epoch)
    told.acked("n2", 36, 37, 2, end=2500, holders=[1])
    changed(told, 37.3, ["n1", "n2"], "n2", 6, "n3")
    assert check(ON_SET, told).valid is valid


def test_who_lacked_it_at_the_time_may_still_get_it_before_it_is_told() -> None:
    told = good().observe("n1", 30.05, "slave", 2, end_offset=1599)  # clocks may be apart
    assert check(ON_SET, told).valid is True


def test_who_follows_in_another_epoch_is_asked_of_that_one() -> None:
    assert check(ON_SET, good().observe("n1", 50, "slave", 3, end_offset=0)).valid is True


def test_one_laggard_is_no_lack_of_copies() -> None:
    told = good()
    for at in range(31, 59):
        told.observe("n1", at, "slave", 2, end_offset=900)
    assert check(ON_TWO, told).valid is True
    # Another one that lacks something else, which the first one has.
    told = good().observe("n1", 31, "slave", 2, end_offset=900)
    told.acked("n2", 32, 33, 2, end=2500, holders=[1])
    told.observe("n1", 35, "slave", 2, end_offset=2500)
    assert check(ON_TWO, told.observe("n3", 36, "slave", 2, end_offset=2400)).valid is True


def test_copies_that_need_not_be_on_the_disk_may_go_with_the_power() -> None:
    """A synchronous master's slaves acknowledge what is written."""

    def lost(at: float, kind: str) -> Story:
        return two_laggards().fault(2, kind, at, at + 1, ["n1", "n3"])

    unflushed = AckedOnMembers(promised=True, flushed=False, nodes=3, copies=2)
    assert check(unflushed, lost(40, "power-all")).valid is True
    assert check(unflushed, lost(40, "kill-all")).valid is False
    assert check(unflushed, lost(20.5, "power-all")).valid is False  # before it was acknowledged
    assert check(unflushed, lost(55, "power-all")).valid is False  # after it was lacked
    assert check(ON_TWO, lost(40, "power-all")).valid is False


# -- I2 --------------------------------------------------------------------------------------------


def test_an_unclean_election_is_no_failure_where_it_is_allowed() -> None:
    _, told = _planted("elected-outside-set")
    assert check(MasterFromSet(unclean=True), told).valid is True
    assert check(MasterFromSet(), elected(good(), 40, "n3", 3, 5, unclean=True)).valid is True


def test_a_new_leader_tells_the_last_election_again_and_the_set_as_it_is() -> None:
    everybody = ["n1", "n2", "n3"]
    told = changed(good(), 30, everybody, "n2", 5, "n3")
    elected(told, 40, "n2", 2, 5, node="n2", members=everybody)
    result = check(MasterFromSet(), elected(told, 42, "n3", 3, 6))
    assert result.valid is True and result.counts["judged-count"] == 2


def test_an_election_whose_set_nobody_told_is_not_judged() -> None:
    result = check(MasterFromSet(), elected(good(), 40, "n3", 3, 6))
    assert result.valid is True and result.counts["judged-count"] == 1


def test_the_set_outlives_a_master_that_is_given_up() -> None:
    told = elected(good(), 40, "", 3, 4)
    assert check(MasterFromSet(), elected(told, 42, "n1", 4, 5)).valid is True
    assert check(MasterFromSet(), elected(good(), 40, "", 3, 4)).valid is True
    told = elected(elected(good(), 40, "", 3, 4), 43, "n3", 4, 5)
    assert kinds(check(MasterFromSet(), told)) == ["elected-outside-set"]


# -- I3 --------------------------------------------------------------------------------------------


def test_a_master_that_goes_on_after_a_restart_has_what_it_acknowledged() -> None:
    """Within its epoch: nobody noticed that it was away."""
    told = began(good(), 61, "n2", 2, 2400, (1, 0), (2, 800), incarnation=2)
    assert check(HAS_ACKED, told).valid is True
    told = began(good(), 61, "n2", 2, 2399, (1, 0), (2, 800), incarnation=2)
    assert kinds(check(HAS_ACKED, told)) == ["acked-missing-at-master"]


def test_a_master_that_is_elected_again_takes_messages_meanwhile() -> None:
    """They count under the epoch that ends, and lie behind the beginning of the next."""
    told = began(good(), 31, "n2", 3, 1500, (1, 0), (2, 800), (3, 1500))
    assert check(HAS_ACKED, told).valid is True
    # The next one, on another node, has them under the later epoch.
    began(told, 70, "n3", 4, 2400, (1, 0), (2, 800), (3, 1500))
    assert check(HAS_ACKED, told).valid is True
    assert check(HAS_ACKED, began(told, 71, "n1", 5, 2400, (1, 0), (4, 1500))).valid is False


def test_a_line_that_a_paused_master_tells_late_is_of_its_own_epoch() -> None:
    told = began(good(), 61, "n3", 3, 2400, (1, 0), (2, 800), (3, 2400))
    assert check(HAS_ACKED, told.acked("n2", 58, 65, 2, end=2400)).valid is True
    assert check(HAS_ACKED, told.acked("n2", 58, 66, 2, end=2401)).valid is False


def test_a_table_that_does_not_reach_back_says_nothing_of_the_bytes_before() -> None:
    assert check(HAS_ACKED, began(good(), 61, "n3", 9, 5000, (8, 3000))).valid is True


def test_what_was_not_acknowledged_may_be_cut() -> None:
    told = good().event("n1", 21, "truncated", "slave", 2, incarnation=2, to=700)
    assert check(HAS_ACKED, told).valid is True


# -- I4 --------------------------------------------------------------------------------------------


def test_two_elections_of_one_epoch_are_found() -> None:
    assert kinds(check(OneMasterAnEpoch(), elected(good(), 12.5, "n3", 2, 4))) == [
        "two-masters-in-epoch"
    ]


def test_two_nodes_that_answer_that_they_are_master_of_one_epoch_are_found() -> None:
    (anomaly,) = check(OneMasterAnEpoch(), answers_beside()).anomalies
    assert anomaly.kind == "two-masters-in-epoch" and len(anomaly.operations) == 2


def test_a_change_that_was_told_late_is_judged_by_its_epoch() -> None:
    """The set of n1's tenure is told after n2 was elected."""
    told = good()
    told.events = [e for e in told.events if (e["detail"] or {}).get("set_epoch") != 2]
    assert check(OneMasterAnEpoch(), changed(told, 13, ["n1", "n2"], "n1", 2)).valid is True


def test_a_master_given_up_after_its_last_change_did_not_make_it_fenced() -> None:
    told = changed(good(), 30, ["n2", "n1", "n3"], "n2", 5, "n3")
    assert check(OneMasterAnEpoch(), elected(told, 40, "", 3, 5)).valid is True
    told = elected(good(), 29, "", 3, 4)
    assert kinds(check(OneMasterAnEpoch(), changed(told, 30, ["n2"], "n2", 5, "n3"))) == [
        "fenced-alteration"
    ]


def test_without_epochs_none_is_shared() -> None:
    told = Story().phases().role("n1", 1, "master", 0).role("n2", 30, "master", 0)
    assert check(OneMasterAnEpoch(), told).valid is True


def test_groups_are_judged_apart() -> None:
    told = good().role("n3", 30, "master", 2, group="other")
    assert check(OneMasterAnEpoch(), told).valid is True


# -- what is promised ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["member-lacks-acked", "acked-cut"])
def test_what_is_not_promised_is_told_and_valid(kind: str) -> None:
    _, told = _planted(kind)
    judges: dict[str, Checker] = {
        "member-lacks-acked": AckedOnMembers(promised=False, by_set=True),
        "acked-cut": MasterHasAcked(promised=False),
    }
    result = check(judges[kind], told)
    assert result.valid is True and kinds(result) == [kind]
    assert "not promised under these settings" in result.notes[0]


@pytest.mark.parametrize("fault", ["wipe", "disk-corrupt"])
def test_a_disk_that_loses_what_it_had_ends_the_promise(fault: str) -> None:
    judge, told = _planted("acked-missing-at-master")
    result = check(judge, told.fault(2, fault, 50, 51, ["n3"]))
    assert result.valid is True and "a disk lost what it had" in result.notes[0]
