"""The consensus core's rules, one by one, in written schedules."""

from __future__ import annotations

import msgspec
import pytest

from shalott.broker.raft import api
from shalott.broker.raft.api import RaftCode
from shalott.broker.raft.log import Log
from tests.world.raft.model import FAST, ModelDisk
from tests.world.raft.script import Script

pytestmark = pytest.mark.unit


def test_a_group_of_one_leads_and_commits_alone() -> None:
    script = Script("a", settings=FAST)
    script.pass_time(300)
    assert script.role("a") == "leader"
    script.propose("a", b"1")
    assert script.commit("a") == 2  # after the no-op
    number = script.group.read("a")
    assert number not in script.group.readings


def test_nothing_is_answered_before_it_is_durable() -> None:
    script = Script("abc")
    script.elect("a")
    script.slow_disks = dict.fromkeys("bc")
    script.propose("a", b"1")
    script.pass_time(50)
    assert script.log("b") == [b"1"] and script.commit("a") == 0
    script.group.persist("b")
    script.settle()
    assert script.commit("a") == 1


def test_a_leader_does_not_count_itself_before_it_is_durable() -> None:
    script = Script("abc")
    script.elect("a")
    script.slow_disks = dict.fromkeys("ac")
    script.propose("a", b"1")
    assert script.commit("a") == 0
    script.group.persist("a")
    assert script.commit("a") == 1


def test_a_leader_without_a_quorum_steps_down_in_time() -> None:
    script = Script("abc")
    script.elect("a")
    script.isolate("a", "bc")
    script.pass_time(FAST.leak_ms - 20, "a")
    assert script.role("a") == "leader"
    script.pass_time(FAST.heartbeat_interval_ms, "a")
    assert script.role("a") == "candidate"
    term = script.term("a")
    script.pass_time(3000, "a")
    assert script.term("a") == term  # pre-vote: no member said yes


def test_a_leader_with_a_quorum_stays() -> None:
    script = Script("abcde")
    script.elect("a")
    script.isolate("abc", "de")
    script.pass_time(2000)
    assert script.role("a") == "leader"


def test_who_hears_a_leader_votes_for_nobody_else() -> None:
    script = Script("abc")
    script.elect("a")
    script.pass_time(100)
    request = api.VoteRequest(
        serial=9, term=50, candidate="c", last_index=9, last_term=9, pre=False
    )
    script.group.deliver("c", "b", request)
    answer = script.sent[-1][2]
    assert isinstance(answer, api.VoteResponse)
    assert answer.result == api.VoteResult.ALREADY_HAS_LEADER
    assert script.term("b") == script.term("a")


@pytest.mark.parametrize(
    ("change", "result"),
    [
        ({"candidate": "x"}, api.VoteResult.UNKNOWN_LEADER),
        ({"last_term": 0}, api.VoteResult.EXPIRED_LEDGER_TERM),
        ({"last_index": 1}, api.VoteResult.SMALL_LEDGER_END_INDEX),
        ({"term": 0}, api.VoteResult.EXPIRED_VOTE_TERM),
        ({"term": 1}, api.VoteResult.ALREADY_VOTED),
        ({}, api.VoteResult.ACCEPT),
        ({"pre": True}, api.VoteResult.ACCEPT),
        # An older log is refused before terms are looked at, and raises no term.
        ({"term": 99, "last_index": 0}, api.VoteResult.SMALL_LEDGER_END_INDEX),
    ],
)
def test_votes_are_refused_in_the_order_of_the_table(
    change: dict[str, object], result: api.VoteResult
) -> None:
    script = Script("abc")
    script.elect("a")
    script.propose("a", b"1", b"2")
    script.isolate("a", "b", "c")
    script.pass_time(FAST.leak_ms + 200, "b")
    script.sent.clear()
    request = api.VoteRequest(serial=7, term=2, candidate="c", last_index=2, last_term=1, pre=False)
    request = msgspec.structs.replace(request, **change)
    script.group.deliver(request.candidate, "b", request)
    if result == api.VoteResult.ACCEPT and not request.pre:
        assert not script.sent  # not yet: it is not durable
        script.group.persist("b")
    answer = script.sent[-1][2]
    assert isinstance(answer, api.VoteResponse)
    assert answer.result == result
    assert script.term("b") == (2 if result == api.VoteResult.ACCEPT and not request.pre else 1)


def test_an_answer_to_a_former_life_elects_nobody() -> None:
    """Serials begin anew in every life."""
    script = Script("abc")
    script.isolate("a", "b", "c")
    script.pass_time(300, "a")
    asked = [m for _, _, m in script.sent if isinstance(m, api.VoteRequest)]
    core = script.group.members["a"].core
    assert core is not None
    for pre, term in ((True, 7), (False, 1)):
        answer = api.VoteResponse(
            serial=core._state.serial, term=term, voter="b", result=api.VoteResult.ACCEPT, pre=pre
        )
        script.group.deliver("b", "a", answer)
    assert not asked or script.role("a") == "candidate"
    assert script.term("a") == 0


def test_a_far_behind_follower_is_found_in_few_steps() -> None:
    """By term and index, not by one entry at a time."""
    script = Script("abc")
    for turn, (leader, other) in enumerate((("a", "bc"), ("b", "ac"), ("a", "bc"))):
        script.elect(leader)
        if turn == 0:
            script.propose(leader, *(b"%d" % n for n in range(50)))
            script.pass_time(100)
        else:
            script.isolate(leader, other)
            script.propose(leader, *(b"%d.%d" % (turn, n) for n in range(50)))
            script.heal()
    compares = 0

    def count(sender: str, to: str, message: api.Message) -> None:
        nonlocal compares
        if isinstance(message, api.PushRequest) and message.type == api.PushType.COMPARE:
            compares += to == "b"
        script.sent.append((sender, to, message))

    script.group.post = count
    script.pass_time(300)
    assert script.log("a") == script.log("b") == script.log("c")
    assert compares <= 3


def test_a_late_truncate_does_not_remove_what_came_since() -> None:
    script = Script("abc")
    script.elect("a")
    late = api.PushRequest(
        serial=1,
        term=script.term("a"),
        leader="a",
        type=api.PushType.TRUNCATE,
        prev_index=0,
        prev_term=0,
        commit_index=0,
    )
    script.propose("a", b"1", b"2")
    script.pass_time(100)
    script.group.deliver("a", "b", late)
    assert script.log("b") == [b"1", b"2"] and script.commit("b") == 2


def test_what_a_follower_has_beyond_its_leader_goes_without_new_entries() -> None:
    script = Script("abc")
    script.elect("a")
    script.propose("a", b"1")
    script.isolate("a", "bc")
    script.propose("a", b"2", b"3")
    script.elect("b")
    script.heal()
    script.pass_time(500)
    assert script.role("b") == "leader"
    assert script.log("a") == [b"1"]


def test_a_follower_whose_snapshot_goes_further_than_its_leaders_is_not_lost() -> None:
    """The leader knows nothing of it yet, and has no more of the log than behind its snapshot."""
    script = Script("abc")
    script.elect("b")
    script.propose("b", b"1", b"2")
    script.pass_time(100)
    script.group.take_snapshot("a")
    script.propose("b", b"3", b"4")
    script.pass_time(100)
    script.group.take_snapshot("c")
    script.isolate("ab", "c")
    script.elect("a")
    script.group.step("a", api.ConnectionChanged("c", True))
    script.heal()
    script.propose("a", b"5")
    script.pass_time(2_000)
    assert script.commit("c") == script.commit("a")
    assert script.log("c")[-1] == b"5"


def test_a_snapshot_that_the_leaders_do_not_have_agrees_to_nothing() -> None:
    """A majority of disks was wiped: what the third had compacted is not what comes there now."""
    script = Script("abc")
    script.group.watch_committed = False
    script.elect("a")
    script.propose("a", b"1", b"2")
    script.pass_time(100)
    script.group.take_snapshot("c")
    script.isolate("ab", "c")
    for name in "ab":
        script.group.crash(name)
        script.group.wipe(name)
        script.group.start(name)
    script.group.leaders.clear()
    script.elect("b")
    script.elect("a")
    script.propose("a", b"other 1")
    script.pass_time(100)
    script.group.take_snapshot("a")
    script.isolate("ac", "b")
    script.group.step("a", api.ConnectionChanged("c", True))
    committed = script.commit("a")
    script.propose("a", b"other 2", b"other 3")
    script.pass_time(100)
    assert script.commit("a") == committed


def test_proposals_are_refused_when_too_much_is_pending() -> None:
    settings = msgspec.structs.replace(FAST, no_op_on_election=False, max_pending_entries=2)
    script = Script("abc", settings=settings)
    script.elect("a")
    script.isolate("a", "bc")
    script.propose("a", b"1", b"2")
    assert script.group.step("a", api.Propose(b"3")) == [api.Refused("LEADER_PENDING_FULL", "a")]


def test_reads_of_a_leader_that_was_replaced_fail() -> None:
    script = Script("abc", settings=FAST)
    script.elect("a")
    script.propose("a", b"1")
    script.isolate("a", "bc")
    number = script.group.read("a")
    script.settle()
    assert script.group.readings[number].index is None
    script.elect("b")
    script.propose("b", b"2")
    script.heal()
    script.pass_time(200)
    assert number not in script.group.readings  # ReadFailed
    assert script.group.reads_done == 0


def test_a_write_that_was_truncated_meanwhile_makes_nothing_durable() -> None:
    log = Log(ModelDisk())
    log.append([api.Entry(1, 1, b"1"), api.Entry(2, 1, b"2"), api.Entry(3, 1, b"3")], 1)
    log.truncate(2, 2)
    log.append([api.Entry(2, 2, b"new")], 3)
    log.persisted(1)
    assert (log.durable_index, log.last_index) == (1, 2)
    assert log.term_at(2) == 2


def test_where_terms_begin_and_end() -> None:
    log = Log(ModelDisk())
    terms = (1, 1, 2, 2, 2, 4)
    log.append([api.Entry(at, term, b"x") for at, term in enumerate(terms, 1)], 1)
    assert [log.first_of_term(index) for index in range(1, 7)] == [1, 1, 3, 3, 3, 6]
    assert [log.last_up_to_term(term, 6) for term in range(6)] == [0, 2, 5, 5, 6, 6]
    assert log.last_up_to_term(2, 4) == 4


# -- connections, and commits at once --------------------------------------------------------------


def test_a_follower_that_loses_its_leader_stands_without_waiting() -> None:
    script = Script("abc")
    script.elect("a")
    script.isolate("a", "bc")
    for name in "bc":
        script.group.step(name, api.ConnectionChanged("a", False))
    script.pass_time(2 * FAST.vote_max_ms, "bc")
    assert "leader" in (script.role("b"), script.role("c"))


def test_who_still_hears_the_leader_does_not_care_who_else_is_gone() -> None:
    script = Script("abc")
    script.elect("a")
    script.group.step("b", api.ConnectionChanged("c", False))
    script.group.step("a", api.ConnectionChanged("c", False))
    assert script.role("a") == "leader" and script.role("b") == "follower"


def test_a_leader_that_loses_its_quorum_steps_down_at_once() -> None:
    script = Script("abc")
    script.elect("a")
    script.group.step("a", api.ConnectionChanged("b", False))
    assert script.role("a") == "leader"
    script.group.step("a", api.ConnectionChanged("c", False))
    assert script.role("a") == "candidate"


def test_a_new_connection_brings_what_was_lost_with_the_old_one() -> None:
    patient = msgspec.structs.replace(FAST, push_timeout_ms=60_000, commit_push_interval_ms=60_000)
    script = Script("abc", settings=patient)
    script.elect("a")
    script.isolate("ab", "c")
    script.propose("a", b"1")
    script.heal()
    script.pass_time(FAST.leak_ms - 20)
    assert b"1" not in script.log("c")
    script.group.step("a", api.ConnectionChanged("c", True))
    script.settle()
    assert b"1" in script.log("c")


@pytest.mark.parametrize("at_once", [True, False])
def test_followers_hear_of_a_commit_at_once_if_that_is_wanted(at_once: bool) -> None:
    settings = msgspec.structs.replace(
        FAST, push_commits_at_once=at_once, commit_push_interval_ms=60_000
    )
    script = Script("abc", settings=settings)
    script.elect("a")
    script.propose("a", b"1")
    script.settle()
    committed = script.commit("a")
    assert committed
    assert [script.commit(name) == committed for name in "bc"] == [at_once] * 2


def test_a_group_prefers_who_stands_first() -> None:
    script = Script("abc")
    for name, stand_ms in (("a", 60), ("b", 20), ("c", 90)):
        script.group.crash(name)
        script.group.settings = msgspec.structs.replace(
            FAST, stand_min_ms=stand_ms, stand_max_ms=stand_ms
        )
        script.group.start(name)
    script.pass_time(50)
    assert script.role("b") == "leader"
    script.group.crash("b")
    for name in "ac":
        script.group.step(name, api.ConnectionChanged("b", False))
    script.pass_time(80)
    assert script.role("a") == "leader"


# -- members of another implementation -------------------------------------------------------------


def foreign_push(
    script: Script, kind: api.PushType, prev_index: int, prev_term: int, *entries: api.Entry
) -> api.PushResponse:
    """What "b" answers when a leader of upstream's, "a" in term 9, pushes that."""
    request = api.PushRequest(
        serial=1,
        term=9,
        leader="a",
        type=kind,
        prev_index=prev_index,
        prev_term=prev_term,
        commit_index=3,
        entries=entries,
    )
    script.sent.clear()
    script.group.deliver("a", "b", request)
    while script.group.members["b"].writes:
        script.group.persist("b")
    answer = script.sent[-1][2]
    assert isinstance(answer, api.PushResponse)
    return answer


def test_what_a_leader_does_not_tell_must_have_been_agreed() -> None:
    script = Script("abc", watch_committed=False)
    script.elect("a")
    script.propose("a", b"1", b"2", b"3")
    term, append = script.term("a"), api.PushType.APPEND
    refused = foreign_push(script, append, 3, api.UNTOLD, api.Entry(4, 9, b"4"))
    assert (refused.code, refused.end_index) == (RaftCode.INCONSISTENT_STATE, 3)
    assert foreign_push(script, api.PushType.COMMIT, 0, api.UNTOLD).code == RaftCode.SUCCESS
    assert script.commit("b") < 3  # nothing is agreed yet
    assert foreign_push(script, api.PushType.COMPARE, 2, term).match_index == 2
    done = foreign_push(script, append, 2, api.UNTOLD, api.Entry(3, 9, b"x"))
    assert (done.match_index, script.log("b")) == (3, [b"1", b"2", b"x"])
    foreign_push(script, api.PushType.COMMIT, 0, api.UNTOLD)
    assert script.commit("b") == 3
    again = foreign_push(script, append, 2, api.UNTOLD, api.Entry(3, 9, b"x"))
    assert (again.code, again.match_index) == (RaftCode.SUCCESS, 3)


def test_the_first_entry_comes_with_a_foreign_truncate() -> None:
    script = Script("abc", watch_committed=False)
    script.elect("a")
    script.propose("a", b"1", b"2")
    first, truncate = api.Entry(1, 9, b"x"), api.PushType.TRUNCATE
    refused = foreign_push(script, truncate, 2, 9, api.Entry(2, 9, b"y"))
    assert refused.code == RaftCode.INCONSISTENT_STATE
    done = foreign_push(script, truncate, 1, 9, first)
    assert (done.match_index, done.end_index, script.log("b")) == (1, 1, [b"x"])
    assert foreign_push(script, truncate, 1, 9, first).end_index == 1


def test_who_is_not_ready_for_a_term_is_asked_again_in_it() -> None:
    script = Script("abc")
    script.group.tick("a", FAST.vote_max_ms)

    def vote(result: api.VoteResult, *, pre: bool, term: int) -> None:
        request = next(m for _, to, m in reversed(script.sent) if to == "b")
        assert isinstance(request, api.VoteRequest) and request.pre == pre
        response = api.VoteResponse(
            serial=request.serial, term=term, voter="b", result=result, pre=pre
        )
        script.group.deliver("b", "a", response)

    vote(api.VoteResult.ACCEPT, pre=True, term=1)
    script.group.persist("a")
    vote(api.VoteResult.TERM_NOT_READY, pre=False, term=0)
    term = script.term("a")
    script.group.tick("a", script.group.members["a"].clock_ms + 20)
    vote(api.VoteResult.ACCEPT, pre=False, term=term)
    assert (script.role("a"), script.term("a")) == ("leader", term)


def test_a_leader_beats_again_soon_for_who_is_not_ready() -> None:
    script = Script("abc")
    script.elect("a")
    script.sent.clear()
    beat = api.HeartbeatResponse(
        serial=1, term=script.term("a"), node="b", code=RaftCode.TERM_NOT_READY, round=1
    )
    script.group.deliver("b", "a", beat)
    script.group.tick("a", script.group.members["a"].clock_ms + 20)
    assert [to for _, to, m in script.sent if isinstance(m, api.HeartbeatRequest)] == ["b", "c"]


def test_a_candidate_to_whom_the_leadership_is_handed_gets_its_leaders_vote() -> None:
    """It need not say that it is one: upstream's does not."""
    script = Script("abc")
    script.elect("a")
    script.propose("a", b"1")
    script.group.step("a", api.TransferRequested("b"))
    script.sent.clear()
    request = api.VoteRequest(
        serial=1, term=script.term("a") + 1, candidate="b", last_index=1, last_term=1, pre=False
    )
    script.group.deliver("b", "a", request)
    script.group.persist("a")
    answer = script.sent[-1][2]
    assert isinstance(answer, api.VoteResponse) and answer.result == api.VoteResult.ACCEPT


def test_what_was_agreed_and_is_cut_is_agreed_no_more() -> None:
    script = Script("abc", watch_committed=False)
    script.elect("a")
    script.propose("a", b"1", b"2", b"3")
    term = script.term("a")
    assert foreign_push(script, api.PushType.COMPARE, 3, term).match_index == 3
    assert foreign_push(script, api.PushType.TRUNCATE, 2, term).end_index == 2
    gap = foreign_push(script, api.PushType.APPEND, 3, api.UNTOLD, api.Entry(4, 9, b"4"))
    assert (gap.code, gap.end_index) == (RaftCode.INCONSISTENT_STATE, 2)


def test_who_does_not_follow_yet_is_compared_again_soon() -> None:
    script = Script("abc")
    script.elect("a")
    script.sent.clear()
    script.group.step("a", api.ConnectionChanged("b", True))
    asked = script.sent.pop()[2]
    assert isinstance(asked, api.PushRequest) and asked.type == api.PushType.COMPARE
    refusal = api.PushResponse(
        serial=asked.serial,
        term=asked.term,
        node="b",
        type=asked.type,
        code=RaftCode.NOT_FOLLOWER,
    )
    script.group.deliver("b", "a", refusal)
    script.group.tick("a", script.group.members["a"].clock_ms + 20)
    kinds = [(to, m.type) for _, to, m in script.sent if isinstance(m, api.PushRequest)]
    assert ("b", api.PushType.COMPARE) in kinds
