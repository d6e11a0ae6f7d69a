"""UnconfirmedMessages against a plain model, over every short history, and its rules one by one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shalott.broker.rabbit.amqp.confirms import IN_QUESTION_MAX_NS, UnconfirmedMessages, Verdict
from shalott.broker.rabbit.processes.messages import Pid

pytestmark = pytest.mark.unit

MASTER, MIRROR, MIRROR2 = Pid("n1", 1, 1), Pid("n2", 1, 1), Pid("n3", 1, 1)
OTHER = Pid("n1", 1, 2)
ALL = (MASTER, MIRROR, MIRROR2)


def verdicts(unconfirmed: UnconfirmedMessages) -> tuple[list[int], list[int]]:
    """The seqs acked and nacked since the last call, before they are coalesced."""
    nacks = [verdict.seq for verdict in unconfirmed.take_nacks()]
    acks = sorted(unconfirmed._acks)
    unconfirmed.take_acks()
    return acks, nacks


def sent(processes: Iterable[Pid] = ALL, count: int = 1) -> UnconfirmedMessages:
    unconfirmed = UnconfirmedMessages()
    for seq in range(1, count + 1):
        unconfirmed.sent(seq, {"q": tuple(processes)})
    return unconfirmed


def test_acked_only_when_every_process_has_confirmed() -> None:
    unconfirmed = sent()
    unconfirmed.confirm(MASTER, [1])
    unconfirmed.confirm(MIRROR2, [1])
    assert verdicts(unconfirmed) == ([], [])
    unconfirmed.confirm(MIRROR, [1])
    assert verdicts(unconfirmed) == ([1], [])
    assert len(unconfirmed) == 0


def test_every_queue_must_confirm() -> None:
    unconfirmed = UnconfirmedMessages()
    unconfirmed.sent(1, {"a": [MASTER], "b": [OTHER]})
    unconfirmed.confirm(MASTER, [1])
    assert verdicts(unconfirmed) == ([], [])
    unconfirmed.confirm(OTHER, [1])
    assert verdicts(unconfirmed) == ([1], [])


def test_unroutable_is_acked_at_once() -> None:
    unconfirmed = UnconfirmedMessages()
    unconfirmed.sent(1, {})
    assert verdicts(unconfirmed) == ([1], [])


def test_queue_without_a_process_is_nacked_at_once() -> None:
    unconfirmed = UnconfirmedMessages()
    unconfirmed.sent(1, {"a": [MASTER], "b": []})
    assert verdicts(unconfirmed) == ([], [1])
    unconfirmed.confirm(MASTER, [1])
    assert verdicts(unconfirmed) == ([], [])


def test_process_that_goes_down_is_forgotten() -> None:
    unconfirmed = sent()
    unconfirmed.down(MASTER, normal=False)
    unconfirmed.confirm(MIRROR, [1])
    unconfirmed.confirm(MIRROR2, [1])
    assert verdicts(unconfirmed) == ([1], [])


def test_down_of_the_last_that_owed_acks_if_any_had_confirmed() -> None:
    unconfirmed = sent()
    unconfirmed.confirm(MASTER, [1])
    unconfirmed.down(MIRROR, normal=False)
    assert verdicts(unconfirmed) == ([], [])
    unconfirmed.down(MIRROR2, normal=False)
    assert verdicts(unconfirmed) == ([1], [])


@pytest.mark.parametrize(("synchronised", "acked"), [(True, True), (False, False)])
def test_a_mirror_that_is_not_synchronised_cannot_vouch_for_a_dead_master(
    synchronised: bool, acked: bool
) -> None:
    unconfirmed = UnconfirmedMessages()
    unconfirmed.sent(1, {"q": [MASTER, OTHER]}, {} if synchronised else {"q": [OTHER]})
    unconfirmed.confirm(OTHER, [1])
    unconfirmed.down(MASTER, normal=False)
    assert bool(unconfirmed.take_nacks()) is not acked
    assert bool(unconfirmed.take_acks()) is acked


def in_question(
    processes: Iterable[Pid] = ALL,
) -> tuple[UnconfirmedMessages, dict[str, Pid | None]]:
    """The master died unconfirmed, both mirrors confirmed; and who is recorded as master."""
    recorded: dict[str, Pid | None] = {"q": MASTER}
    unconfirmed = UnconfirmedMessages(recorded.get)
    unconfirmed.sent(1, {"q": tuple(processes)})
    unconfirmed.confirm(MIRROR, [1])
    unconfirmed.confirm(MIRROR2, [1])
    unconfirmed.down(MASTER, normal=False)
    unconfirmed.reconsider(1)
    assert verdicts(unconfirmed) == ([], [])
    assert unconfirmed.in_question
    return unconfirmed, recorded


def test_what_a_dead_master_had_not_confirmed_waits_for_a_successor_that_has_it() -> None:
    unconfirmed, recorded = in_question()
    recorded["q"] = MIRROR2
    unconfirmed.reconsider(2)
    assert verdicts(unconfirmed) == ([1], [])
    assert not unconfirmed.in_question and len(unconfirmed) == 0


def test_a_successor_that_did_not_confirm_makes_a_nack() -> None:
    unconfirmed, recorded = in_question()
    recorded["q"] = OTHER
    unconfirmed.reconsider(2)
    assert verdicts(unconfirmed) == ([], [1])
    assert not unconfirmed.in_question


def test_a_failover_is_not_waited_for_for_ever() -> None:
    unconfirmed, _ = in_question()
    unconfirmed.reconsider(IN_QUESTION_MAX_NS)
    assert verdicts(unconfirmed) == ([], [])
    unconfirmed.reconsider(IN_QUESTION_MAX_NS + 1)
    assert verdicts(unconfirmed) == ([], [1])


def test_a_successor_that_died_without_the_message_is_in_question_though_the_master_had_it() -> (
    None
):
    """All died, and the queue would come back from the successor's disk."""
    recorded: dict[str, Pid | None] = {"q": MASTER}
    unconfirmed = UnconfirmedMessages(recorded.get)
    unconfirmed.sent(1, {"q": [MASTER, MIRROR]})
    unconfirmed.confirm(MASTER, [1])
    recorded["q"] = MIRROR
    unconfirmed.down(MASTER, normal=False)
    unconfirmed.down(MIRROR, normal=False)
    assert verdicts(unconfirmed) == ([], [])
    recorded["q"] = Pid("n2", 2, 1)  # it is back, with what it had
    unconfirmed.reconsider(1)
    assert verdicts(unconfirmed) == ([], [1])


def test_a_dead_master_that_confirmed_and_is_still_recorded_is_enough() -> None:
    unconfirmed = UnconfirmedMessages({"q": MASTER}.get)
    unconfirmed.sent(1, {"q": [MASTER, MIRROR]})
    unconfirmed.confirm(MASTER, [1])
    unconfirmed.down(MASTER, normal=False)
    unconfirmed.down(MIRROR, normal=False)
    assert verdicts(unconfirmed) == ([1], [])


def test_a_refusal_on_another_queues_account_ends_the_question() -> None:
    recorded: dict[str, Pid | None] = {"a": MASTER, "b": OTHER}
    unconfirmed = UnconfirmedMessages(recorded.get)
    unconfirmed.sent(1, {"a": [MASTER, MIRROR], "b": [OTHER]})
    unconfirmed.confirm(MIRROR, [1])
    unconfirmed.down(MASTER, normal=False)
    assert unconfirmed.in_question
    unconfirmed.refuse(OTHER, [1])
    assert verdicts(unconfirmed) == ([], [1])
    assert not unconfirmed.in_question


def test_without_a_master_only_synchronised_mirrors_count() -> None:
    unconfirmed = UnconfirmedMessages()
    unconfirmed.sent(1, {"q": [OTHER]}, {"q": [OTHER]})
    unconfirmed.confirm(OTHER, [1])
    assert unconfirmed.take_nacks() and not unconfirmed.take_acks()


def test_nacked_when_all_went_down_unconfirmed() -> None:
    unconfirmed = sent()
    for process in ALL:
        unconfirmed.down(process, normal=False)
    assert verdicts(unconfirmed) == ([], [1])


def test_deleted_queue_acks() -> None:
    unconfirmed = sent()
    for process in ALL:
        unconfirmed.down(process, normal=True)
    assert verdicts(unconfirmed) == ([1], [])


@pytest.mark.parametrize("crashed", ALL)
def test_one_crash_among_normal_ends_is_no_deletion(crashed: Pid) -> None:
    unconfirmed = sent()
    for process in ALL:
        unconfirmed.down(process, normal=process != crashed)
    assert verdicts(unconfirmed) == ([], [1])


def test_refusal_nacks_whatever_the_others_say() -> None:
    unconfirmed = sent()
    unconfirmed.confirm(MIRROR, [1])
    unconfirmed.refuse(MASTER, [1])
    assert verdicts(unconfirmed) == ([], [1])
    unconfirmed.confirm(MIRROR2, [1])
    assert verdicts(unconfirmed) == ([], [])


def test_late_and_foreign_confirms_are_ignored() -> None:
    unconfirmed = sent([MASTER])
    unconfirmed.confirm(OTHER, [1])
    unconfirmed.confirm(MASTER, [2])
    assert verdicts(unconfirmed) == ([], [])
    unconfirmed.confirm(MASTER, [1, 1])
    unconfirmed.confirm(MASTER, [1])
    unconfirmed.down(MASTER, normal=False)
    assert verdicts(unconfirmed) == ([1], [])


def test_nothing_is_remembered_of_settled_publishes() -> None:
    unconfirmed = sent(count=3)
    unconfirmed.refuse(MASTER, [2])
    for process in ALL:
        unconfirmed.confirm(process, [1, 2, 3])
    assert (unconfirmed._debts, unconfirmed._owed_by) == ({}, {})


# -- coalescing ------------------------------------------------------------------------------------


def test_acks_up_to_the_oldest_undecided_become_one() -> None:
    unconfirmed = sent([MASTER], count=6)
    unconfirmed.confirm(MASTER, [3, 1, 2, 5])
    assert unconfirmed.take_acks() == [Verdict(3, ack=True, multiple=True), Verdict(5, ack=True)]
    unconfirmed.confirm(MASTER, [4])
    assert unconfirmed.take_acks() == [Verdict(4, ack=True)]
    unconfirmed.confirm(MASTER, [6])
    assert unconfirmed.take_acks() == [Verdict(6, ack=True)]


def test_nothing_undecided_makes_everything_one() -> None:
    unconfirmed = sent([MASTER], count=4)
    unconfirmed.confirm(MASTER, [4, 2, 1, 3])
    assert unconfirmed.take_acks() == [Verdict(4, ack=True, multiple=True)]
    assert unconfirmed.take_acks() == []


def test_acks_may_not_be_taken_before_nacks() -> None:
    unconfirmed = sent([MASTER], count=3)
    unconfirmed.refuse(MASTER, [2])
    unconfirmed.confirm(MASTER, [1, 3])
    with pytest.raises(AssertionError):
        unconfirmed.take_acks()
    assert unconfirmed.take_nacks() == [Verdict(2, ack=False)]
    assert unconfirmed.take_acks() == [Verdict(3, ack=True, multiple=True)]


# -- against a model -------------------------------------------------------------------------------


class Model:
    """One publish to two queues, judged from the whole history at once."""

    QUEUES = {"a": (MASTER, MIRROR), "b": (OTHER,)}

    def judge(self, events: tuple[tuple[str, Pid], ...]) -> str | None:
        """ack, nack, or None while undecided; at the first event that decides."""
        for length in range(1, len(events) + 1):
            said: dict[Pid, str] = {}
            for what, process in events[:length]:
                said.setdefault(process, what)  # after its first word a process owes nothing
            outcomes = [self._queue(said, processes) for processes in self.QUEUES.values()]
            if "nack" in outcomes:
                return "nack"
            if all(outcome == "ack" for outcome in outcomes):
                return "ack"
        return None

    def _queue(self, said: dict[Pid, str], processes: tuple[Pid, ...]) -> str | None:
        words = [said.get(process) for process in processes]
        if "refuse" in words:
            return "nack"
        if None in words:
            return None
        deleted = all(word == "normal" for word in words)
        return "ack" if deleted or "confirm" in words else "nack"


def run(unconfirmed: UnconfirmedMessages, what: str, process: Pid, seqs: list[int]) -> None:
    if what == "confirm":
        unconfirmed.confirm(process, seqs)
    elif what == "refuse":
        unconfirmed.refuse(process, seqs)
    else:
        unconfirmed.down(process, normal=what == "normal")


@pytest.mark.explore
def test_every_history_of_four_events_agrees_with_the_model() -> None:
    words = ("confirm", "refuse", "normal", "crash")
    events = tuple(itertools.product(words, (MASTER, MIRROR, OTHER)))
    model = Model()
    for history in itertools.product(events, repeat=4):
        unconfirmed = UnconfirmedMessages()
        unconfirmed.sent(1, Model.QUEUES)
        for what, process in history:
            run(unconfirmed, what, process, [1])
        expected = {"ack": ([1], []), "nack": ([], [1]), None: ([], [])}[model.judge(history)]
        assert verdicts(unconfirmed) == expected, history


@pytest.mark.explore
@given(st.data())
def test_a_client_that_believes_every_ack_is_never_told_too_much(data: st.DataObject) -> None:
    """Play random histories, and apply each verdict as a client would."""
    unconfirmed = UnconfirmedMessages()
    pending: dict[int, None] = {}  # the client's view: sent, and not yet acked or nacked
    owed: dict[int, dict[Pid, None]] = {}
    seq = 0
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(["send", "send", "confirm", "confirm", "nack", "take"]))
        if action == "send":
            seq += 1
            processes = data.draw(st.lists(st.sampled_from(ALL), min_size=1, unique=True))
            unconfirmed.sent(seq, {"q": processes})
            owed[seq], pending[seq] = dict.fromkeys(processes), None
        elif action == "take":
            _tell_client(unconfirmed, pending, owed)
        elif owed:
            which = data.draw(st.sampled_from(sorted(owed)))
            process = data.draw(st.sampled_from(sorted(owed[which])))
            if action == "nack":
                unconfirmed.refuse(process, [which])
                del owed[which]
            else:
                unconfirmed.confirm(process, [which])
                del owed[which][process]
                if not owed[which]:
                    del owed[which]
    _tell_client(unconfirmed, pending, owed)
    assert sorted(pending) == sorted(owed)


def _tell_client(
    unconfirmed: UnconfirmedMessages,
    pending: dict[int, None],
    owed: dict[int, dict[Pid, None]],
) -> None:
    for nack in unconfirmed.take_nacks():
        assert nack.seq in pending and nack.seq not in owed
        del pending[nack.seq]
    for ack in unconfirmed.take_acks():
        told = [s for s in pending if s <= ack.seq] if ack.multiple else [ack.seq]
        assert ack.seq in told
        for each in told:
            assert each in pending, "acked twice"
            assert each not in owed, "acked while a process still owed"
            del pending[each]


def test_what_was_owed_out_of_reach_is_nacked_when_it_is_given_up() -> None:
    """What was sent to the same process since it is in reach again is not."""
    unconfirmed = sent((MASTER, MIRROR))
    unconfirmed.confirm(MASTER, [1])
    unconfirmed.suspect(MIRROR)
    assert verdicts(unconfirmed) == ([], [])
    unconfirmed.sent(2, {"q": (MASTER, MIRROR)})
    unconfirmed.give_up(MIRROR)
    assert verdicts(unconfirmed) == ([], [1])
    unconfirmed.confirm(MASTER, [2])
    unconfirmed.confirm(MIRROR, [2])
    assert verdicts(unconfirmed) == ([2], [])
