"""DLedger's historical bugs in the core: each schedule shows the symptom with the switch on, and
not with it off. Reference section 4.4.
"""

from __future__ import annotations

import pytest

from shalott.broker.raft import api
from tests.world.raft.model import Violation
from tests.world.raft.script import Script

pytestmark = pytest.mark.unit


def figure_8(script: Script) -> None:
    """Raft, Figure 8, up to (d): an entry of term 1 comes to be on three of five in term 3, its
    leader dies, and who has an entry of term 2 in its place may lead."""
    group = script.group
    script.elect("a")
    script.isolate("ab", "cde")
    script.propose("a", b"old")
    group.crash("a")
    script.elect("e")
    script.isolate("e", "abcd")
    script.propose("e", b"other")
    group.crash("e")
    group.start("a")
    script.isolate("abc", "d", "e")
    script.elect("a")
    script.pass_time(200, "abc")  # now it is on c too
    assert script.log("c") == [b"old"]


def test_commit_prior_term_loses_a_committed_entry() -> None:
    """KB-DL-01."""
    script = Script("abcde", "KB-DL-01")
    figure_8(script)
    assert script.commit("a") == 1
    assert script.group.acked == {}  # the life that was asked for it is over; a reader saw it
    script.group.crash("a")
    script.group.start("e")
    script.heal()
    with pytest.raises(Violation, match="leader completeness"):
        script.elect("e")


def test_an_entry_of_a_prior_term_is_not_committed_by_counting() -> None:
    script = Script("abcde")
    figure_8(script)
    assert script.commit("a") == 0
    script.group.crash("a")
    script.group.start("e")
    script.heal()
    script.elect("e")
    script.propose("e", b"new")
    script.pass_time(200, "bcde")
    assert script.log("c") == [b"other", b"new"]
    assert script.commit("c") == 2


def test_an_entry_of_a_prior_term_is_committed_with_one_of_the_new_term() -> None:
    script = Script("abcde")
    figure_8(script)
    script.propose("a", b"new")
    assert script.commit("a") == 2
    script.group.crash("a")
    script.group.start("e")
    script.heal()
    with pytest.raises(AssertionError, match="e is not elected"):
        script.elect("e")


def behind_but_led_once(*bugs: str) -> Script:
    """a led in term 1 and has an entry of its own; b and c have many of a later term."""
    script = Script("abc", *bugs)
    script.elect("a")
    script.propose("a", b"1")
    script.pass_time(100)
    script.isolate("a", "bc")
    script.elect("b")
    script.propose("b", b"2", b"3", b"4")
    assert script.commit("b") == 4
    script.group.crash("b")
    script.heal()
    return script


def test_ledger_end_term_stale_elects_the_one_behind() -> None:
    """KB-DL-02."""
    with pytest.raises(Violation, match="leader completeness"):
        behind_but_led_once("KB-DL-02").elect("a")
    with pytest.raises(AssertionError, match="a is not elected"):
        behind_but_led_once().elect("a")


def comes_back_from_isolation(*bugs: str) -> Script:
    script = Script("abc", *bugs)
    script.elect("a")
    script.propose("a", b"1")
    script.isolate("c", "ab")
    script.pass_time(1000)
    script.propose("a", b"2")
    assert script.commit("a") == 2
    script.heal()
    return script


def test_naive_election_deposes_a_leader_that_nobody_missed() -> None:
    """KB-DL-03: without pre-vote and without loyalty to a leader that is heard."""
    script = comes_back_from_isolation()
    term = script.term("a")
    script.pass_time(1000)
    assert (script.role("a"), script.term("a"), script.term("c")) == ("leader", term, term)
    script = comes_back_from_isolation("KB-DL-03")
    assert script.term("c") > term + 3
    script.pass_time(1000)
    assert script.term("a") > term


def test_no_recompare_when_idle_leaves_a_wiped_follower_empty() -> None:
    """KB-DL-04."""
    for bugs, synchronised in ((("KB-DL-04",), False), ((), True)):
        script = Script("abc", *bugs)
        script.elect("a")
        script.propose("a", b"1", b"2")
        script.pass_time(200)
        assert script.log("c") == [b"1", b"2"]
        script.group.wipe("c")
        script.group.start("c")
        script.pass_time(2000)
        assert (script.log("c") == [b"1", b"2"]) is synchronised
        assert (script.commit("c") == 2) is synchronised


def test_no_revote_on_larger_term_leaves_the_group_without_a_leader() -> None:
    """KB-DL-09: who has the longest log has the smallest term."""
    for bugs, has_leader in ((("KB-DL-09",), False), ((), True)):
        script = Script("abc", *bugs)
        script.elect("a")
        script.isolate("a", "bc")
        script.propose("a", b"long")
        for name in "ab":
            script.group.crash(name)
        script.group.crash("c")
        script.heal()
        script.group.members["b"].disk.hard = api.HardState(5, "b")  # it stood, and lost
        script.group.start("a")
        script.group.start("b")
        script.pass_time(3000)
        assert bool(script.group.leader()) is has_leader
        assert not has_leader or script.group.leader() == "a"


def test_commit_unchecked_commits_beyond_the_own_log() -> None:
    """KB-DL-11: c is told how far the leader is before it has that much."""
    for bugs, committed in ((("KB-DL-11",), 3), ((), 1)):
        script = Script("abc", *bugs, watch_committed=False)
        script.elect("a")
        script.propose("a", b"1", b"2", b"3")
        assert script.commit("a") == 3
        entries = (api.Entry(1, script.term("a"), b"1"),)
        script.group.wipe("c")
        script.group.start("c")
        request = api.PushRequest(
            serial=1,
            term=script.term("a"),
            leader="a",
            type=api.PushType.APPEND,
            prev_index=0,
            prev_term=0,
            commit_index=3,
            entries=entries,
        )
        script.group.deliver("a", "c", request)
        assert script.commit("c") == committed


def test_committed_not_lowered_blocks_the_next_leader() -> None:
    """KB-DL-13: what was committed wrongly (KB-DL-01) is truncated, and the one that remembers it
    as committed comes to lead: it can never say that it has everything applied."""
    for bugs, committed in ((("KB-DL-01", "KB-DL-13"), 3), (("KB-DL-01",), 1)):
        script = Script("abcde", *bugs, watch_committed=False)
        script.elect("a")
        script.isolate("ab", "cde")
        script.propose("a", b"old", b"old 2", b"old 3")
        script.group.crash("a")
        script.elect("e")
        script.isolate("e", "abcd")
        script.propose("e", b"other")
        script.group.crash("e")
        script.group.start("a")
        script.isolate("abc", "d", "e")
        script.elect("a")
        script.pass_time(200, "abc")
        assert script.commit("a") == script.commit("c") == 3
        script.group.crash("a")
        script.group.start("e")
        script.isolate("bcde", "a")
        script.elect("e")
        script.pass_time(200, "bcde")
        script.propose("e", b"more")  # one entry, of this term: two in all
        script.pass_time(200, "bcde")
        assert script.log("c") == [b"other", b"more"]
        assert (script.commit("c") > len(script.log("c"))) is (committed == 3)


def test_isolated_follower_never_recovers() -> None:
    """KB-DL-14: it raises its term alone, and the leader, whose log is longer, never gives in."""
    script = comes_back_from_isolation("KB-DL-14")
    script.pass_time(3000)
    assert script.term("c") > script.term("a")
    assert script.role("c") == "candidate" and script.log("c") == [b"1"]
    script = comes_back_from_isolation()
    script.pass_time(1000)
    assert script.role("c") == "follower" and script.log("c") == [b"1", b"2"]


def test_repeated_push_stuck_freezes_a_watermark() -> None:
    """KB-DL-15: a push that overtook others is remembered as under way for ever."""
    for bugs, watermark in ((("KB-DL-15",), 2), ((), 4)):
        script = Script("abc", *bugs)
        script.elect("a")
        script.propose("a", b"1")
        script.isolate("c", "ab")
        script.propose("a", b"2")  # lost
        script.heal()
        script.propose("a", b"3")
        script.pass_time(2000)
        script.propose("a", b"4")
        script.pass_time(1000)
        core = script.group.members["a"].core
        assert core is not None
        assert core.matches() == {"b": 4, "c": watermark}


def test_vote_not_durable_gives_two_votes_in_a_term() -> None:
    """KB-DL-21: c votes for a, loses power, and votes for b."""
    for bugs, leaders in ((("KB-DL-21",), 2), ((), 1)):
        script = Script("abc", *bugs)
        script.slow_disks["c"] = None
        requests = {
            name: api.VoteRequest(
                serial=1, term=1, candidate=name, last_index=0, last_term=0, pre=False
            )
            for name in "ab"
        }
        script.group.deliver("a", "c", requests["a"])
        votes = [message for _, to, message in script.sent if to == "a"]
        script.group.crash("c")
        script.group.start("c")
        script.group.deliver("b", "c", requests["b"])
        script.group.persist("c")
        votes += [message for _, to, message in script.sent if to == "b"]
        given = [
            vote
            for vote in votes
            if isinstance(vote, api.VoteResponse) and vote.result == api.VoteResult.ACCEPT
        ]
        assert len(given) == leaders
