"""log: one planted failure a kind, and what only an incomplete reading can't tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.logs.replicated_log import KINDS, ReplicatedLog
from shalott.core.log_generator import NO_QUEUE
from tests.checkers.histories import NODES, Story

pytestmark = pytest.mark.unit

KEY = "shalott/0"
Records = Sequence[tuple[int, int | None]]


def story() -> Story:
    return Story(queue=KEY).phases()


def send(
    told: Story, value: int, at: float, offset: int | None = None, kind: str = "ok", **more: Any
) -> Story:
    return told.row("send", at, kind=kind, value=value, offset=offset, **more)


def poll(
    told: Story, at: float, start: int, records: Records, *, jump: bool = False, **more: Any
) -> Story:
    extra = {"from": start, "records": [list(record) for record in records]}
    value = start if jump else None
    kind, error = ("ok", None) if records else ("fail", "empty")
    return told.row("poll", at, kind=kind, error=error, value=value, extra=extra, **more)


def final(told: Story, records: Records, nodes: Sequence[str] = NODES, *, key: str = KEY) -> Story:
    """Every node is read from 0 to its end in two polls and one that finds nothing."""
    half = len(records) // 2
    end = records[-1][0] + 1 if records else 0
    for node in nodes:
        who: dict[str, Any] = {"process": 10 + NODES.index(node), "node": node, "key": key}
        poll(told, 64.1, 0, records[:half], jump=True, **who)
        middle = records[half - 1][0] + 1 if half else 0
        poll(told, 64.2, middle, records[half:], **who)
        poll(told, 64.3, end, [], **who)
    return told


def good() -> Story:
    """Four messages of two senders, one of them read while the load lasts."""
    told = story()
    send(told, 100, 1, 0).row("poll", 1.5, extra={"from": 0, "records": [[0, 100]]}, process=5)
    send(told, 101, 2, 1, node="n2", process=1)
    send(told, 102, 3, None, "info", node="n3", process=2)
    return send(told, 103, 4, 3)


WHOLE: Records = [(0, 100), (1, 101), (2, 102), (3, 103)]


def check(told: Story, complete: bool = True) -> Result:
    return ReplicatedLog().check(told.history(complete))


def kinds(result: Result) -> list[str]:
    return [anomaly.kind for anomaly in result.anomalies]


def test_a_log_that_keeps_everything_is_valid() -> None:
    result = check(final(good(), WHOLE))
    assert result.valid is True
    assert result.anomalies == () and result.notes == ()
    assert result.counts["attempt-count"] == 4
    assert result.counts["acknowledged-count"] == 3
    assert result.counts["indeterminate-count"] == 1
    assert result.counts["recovered-count"] == 1
    assert result.counts["final-count"] == 4
    assert all(result.counts[f"{kind}-count"] == 0 for kind in KINDS)


def test_a_send_of_unknown_outcome_may_never_appear() -> None:
    told = send(good(), 104, 5, None, "info", process=3)
    assert check(final(told, WHOLE)).valid is True


def test_nothing_sent_proves_nothing() -> None:
    assert check(story()).valid == "unknown"


# kind -> what plants it, on top of the good history and its whole final read
PLANTED: dict[str, Callable[[], Story]] = {
    "lost-write": lambda: final(send(good(), 104, 5, 4), WHOLE),
    "lost-on-node": lambda: final(final(good(), WHOLE[:3], ["n3"]), WHOLE, ["n1", "n2"]),
    "vanished": lambda: final(
        poll(send(good(), 104, 5, None, "info", process=3), 6, 4, [(4, 104)], jump=True), WHOLE
    ),
    "duplicate": lambda: final(good(), [*WHOLE, (4, 103)]),
    "inconsistent-offsets": lambda: final(
        poll(good(), 6, 2, [(2, 103)], jump=True), WHOLE
    ),
    "shared-offset": lambda: final(send(good(), 104, 5, 3), WHOLE),
    "phantom": lambda: final(send(good(), 104, 5, None, "fail"), [*WHOLE, (4, 104)]),
    "unexpected": lambda: final(good(), [*WHOLE, (4, 999)]),
    "too-early": lambda: final(
        send(poll(good(), 6, 4, [(4, 104)], jump=True), 104, 7, 4), [*WHOLE, (4, 104)]
    ),
    "corrupted": lambda: final(good(), [*WHOLE, (4, None)]),
    "poll-skip": lambda: final(poll(good(), 6, 0, [(0, 100), (2, 102)], jump=True), WHOLE),
    "nonmonotonic-poll": lambda: final(poll(good(), 6, 0, [(1, 101), (0, 100)], jump=True), WHOLE),
    "nonmonotonic-send": lambda: final(send(good(), 104, 0.5, 4), [*WHOLE, (4, 104)]),
    "reordered": lambda: final(
        send(good(), 104, 3.9, 4, process=7), [*WHOLE, (4, 104)]
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind in PLANTED])
def test_each_planted_failure_is_found_and_told(kind: str) -> None:
    result = check(PLANTED[kind]())
    assert kind in kinds(result)
    assert result.valid is False
    assert result.counts[f"{kind}-count"] == 1
    anomaly = next(anomaly for anomaly in result.anomalies if anomaly.kind == kind)
    assert KEY in anomaly.summary or kind in ("duplicate",)
    assert anomaly.detail["keys"] == [KEY]
    assert anomaly.operations


def test_operations_are_the_historys_indexes() -> None:
    told = final(send(good(), 104, 5, 4), WHOLE)
    history = told.history()
    (anomaly,) = ReplicatedLog().check(history).anomalies
    rows = history.ops.to_pylist()
    assert [rows[index]["value"] for index in anomaly.operations] == [104]
    assert anomaly.summary == (
        "1 lost-write: message 104 at offset 4 of shalott/0, acknowledged to a client of n1 at"
        " 5.0 s, no fault; no node's log has it at the end"
    )


def test_a_lost_message_whose_place_is_taken_says_by_whom() -> None:
    told = send(send(good(), 104, 5, 4), 105, 6, 4, process=1)
    result = check(final(told, [*WHOLE, (4, 105)]))
    lost = next(a for a in result.anomalies if a.kind == "lost-write")
    assert "its offset holds message 105 now" in lost.summary


def test_a_message_that_somebody_read_is_lost_when_the_log_no_longer_has_it() -> None:
    told = poll(send(good(), 104, 5, 4), 6, 4, [(4, 104)], jump=True)
    (lost,) = check(final(told, WHOLE)).anomalies
    assert lost.kind == "lost-write" and "a client had read it" in lost.summary


def test_acknowledged_and_never_read_is_unknown_if_reading_did_not_end() -> None:
    told = final(send(good(), 104, 5, 4), WHOLE, ["n1", "n2"])
    result = check(told)
    assert kinds(result) == ["unseen"]
    assert result.valid == "unknown"
    assert result.notes[0] == "The final read of shalott/0 at n3 is not whole: it was not read at the end."  # fmt: skip # noqa: E501


def test_lost_is_certain_without_final_reads_if_the_place_is_taken() -> None:
    told = poll(send(good(), 104, 5, 4), 6, 4, [(4, 105)], jump=True)
    result = check(send(told, 105, 5.5, None, "info", process=1))
    assert "lost-write" in kinds(result) and result.valid is False


@pytest.mark.parametrize(
    ("polls", "why"),
    [
        ([(0, WHOLE)], "its end was not reached: it was read up to offset 4"),
        ([(0, WHOLE[:2]), (3, WHOLE[3:]), (4, [])], "no client read on from offset 2"),
        ([(1, WHOLE[1:]), (4, [])], "no client read on from offset 0"),
        ([(0, WHOLE), (3, [])], "its end was not reached: it was read up to offset 4"),
    ],
)
def test_a_final_read_must_join_up_to_the_end(polls: list[tuple[int, Records]], why: str) -> None:
    told = final(good(), WHOLE, ["n1", "n2"])
    for start, records in polls:
        poll(told, 64.5, start, records, jump=True, process=12, node="n3")
    result = check(told)
    assert result.valid == "unknown"
    assert result.detail["unread"] == [["n3", KEY, why]]


def test_a_record_damaged_at_the_end_does_not_stop_the_final_read() -> None:
    told = final(good(), [(0, None), *WHOLE[1:]], ["n1"])
    result = check(final(told, WHOLE, ["n2", "n3"]))
    assert set(kinds(result)) == {"corrupted", "lost-on-node"}
    assert "2 of 3 nodes" in result.anomalies[0].summary


def test_what_a_node_lacks_before_it_settled_is_unknown() -> None:
    told = Story(queue=KEY).phase("load", 0, 60).phase("heal", 60, 62)
    told.around("phase", 62, 64, extra={"phase": "settle", "settled": False, "reason": "r"})
    told.phase("drain", 64, 66)
    send(told, 100, 1, 0)
    send(told, 101, 2, 1)
    final(final(told, [(0, 100)], ["n3"]), [(0, 100), (1, 101)], ["n1", "n2"])
    result = check(told)
    assert kinds(result) == ["lost-on-node"] and result.valid == "unknown"


def test_an_unfinished_recording_is_unknown() -> None:
    assert check(final(good(), WHOLE), complete=False).valid == "unknown"


def test_queues_are_judged_apart() -> None:
    told = send(good(), 200, 5, 0, key="shalott/1", process=4)
    final(final(told, WHOLE), [(0, 200)], key="shalott/1")
    assert check(told).valid is True


@pytest.mark.parametrize(("kind", "error"), [("fail", "no connection"), ("info", "timeout")])
def test_a_poll_that_was_not_answered_ends_no_final_read(kind: str, error: str) -> None:
    told = final(good(), WHOLE, ["n1", "n2"])
    poll(told, 64.5, 0, WHOLE, jump=True, process=12, node="n3")
    extra = {"from": 4, "records": []}
    told.row("poll", 64.6, kind=kind, error=error, process=12, node="n3", extra=extra)
    assert check(told).valid == "unknown"


@pytest.mark.parametrize(
    ("nodes", "kind"), [((), []), (("n3",), ["lost-on-node"]), (NODES, ["lost-write"])]
)
def test_a_node_that_has_no_such_queue_to_the_last_lacks_its_messages(
    nodes: Sequence[str], kind: list[str]
) -> None:
    told = final(send(good(), 200, 5, 0, key="shalott/1", process=4), WHOLE)
    final(told, [(0, 200)], [node for node in NODES if node not in nodes], key="shalott/1")
    for node in nodes:
        who: dict[str, Any] = {"process": 20 + NODES.index(node), "node": node}
        error = f"{NO_QUEUE}: queueId[1] is illegal"
        told.row("poll", 64.4, kind="fail", error=error, value=0, key="shalott/1", **who)
    result = check(told)
    assert kinds(result) == kind
    assert result.valid is not bool(kind)


@pytest.mark.parametrize(("added", "valid"), [(True, True), (False, "unknown")])
def test_an_added_queue_where_nothing_was_acknowledged_need_not_be_read(
    added: bool, valid: bool | str
) -> None:
    told = good()
    if added:
        told.row("grow", 4, key="shalott/1", process=5)
    send(told, 200, 5, None, kind="info", key="shalott/1", process=4)
    assert check(final(told, WHOLE)).valid == valid


def moved(told: Story, at: float, start: int, to: int, **more: Any) -> Story:
    return told.row("poll", at, kind="fail", error=f"there is no offset {start}",
                    extra={"from": start, "moved": to}, **more)  # fmt: skip


def test_a_node_whose_queue_begins_later_lacks_what_was_before() -> None:
    told = final(good(), WHOLE, ["n1", "n2"])
    who: dict[str, Any] = {"process": 12, "node": "n3"}
    moved(told, 64.5, 0, 2, **who)
    poll(told, 64.6, 2, WHOLE[2:], **who)
    poll(told, 64.7, 4, [], **who)
    result = check(told)
    assert kinds(result) == ["lost-on-node", "poll-skip"] and result.valid is False
    assert "a reader at n3 was sent on to offset 2 of shalott/0 instead of 0" in (
        result.anomalies[1].summary
    )
    assert not result.detail["unread"]


def test_a_reader_that_is_sent_back_reads_again() -> None:
    told = poll(good(), 6, 0, WHOLE, jump=True, process=8)
    moved(told, 7, 4, 3, process=8)
    poll(told, 8, 3, WHOLE[3:], process=8)
    assert check(final(told, WHOLE)).valid is True
    assert "inconsistent-offsets" in kinds(check(poll(told, 9, 3, [(3, 101)], process=8)))


def test_sent_back_is_not_the_end() -> None:
    told = final(good(), WHOLE, ["n1", "n2"])
    poll(told, 64.5, 0, WHOLE, jump=True, process=12, node="n3")
    moved(told, 64.6, 4, 2, process=12, node="n3")
    assert check(told).valid == "unknown"


def test_what_is_no_poll_or_send_is_the_harnesss_own_fault() -> None:
    told = final(good(), WHOLE)
    told.row("poll", 6, extra={"records": []}).row("send", 7, value=200)
    result = check(told)
    assert "2 sends and polls were not recorded as they should be." in result.notes


def test_a_message_in_two_queues_is_a_duplicate() -> None:
    told = send(good(), 200, 5, 0, key="shalott/1", process=4)
    final(final(told, WHOLE), [(0, 200), (1, 101)], key="shalott/1")
    assert "duplicate" in kinds(check(told))


def sent_often(kind: str, offset: int | None, times: int) -> Story:
    """Message 104, which a library sent so often."""
    told = good()
    return told.row(
        "send", 5, value=104, kind=kind, offset=offset, process=9, extra={"sent": times}
    )


@pytest.mark.parametrize(("kind", "offset"), [("ok", 5), ("info", None)])
def test_what_a_library_sent_twice_may_lie_there_twice(kind: str, offset: int | None) -> None:
    both = [*WHOLE, (4, 104), (5, 104)]
    result = check(final(sent_often(kind, offset, 2), both))
    assert result.valid is True
    (anomaly,) = result.anomalies
    assert anomaly.kind == "stored-twice"
    assert anomaly.detail["by"] == "client"
    assert result.counts["stored-twice-count"] == 1


def test_a_broker_that_stores_it_oftener_than_it_was_sent_is_found() -> None:
    often = [*WHOLE, (4, 104), (5, 104), (6, 104)]
    result = check(final(sent_often("ok", 5, 2), often))
    assert kinds(result) == ["duplicate"]
    assert result.valid is False


def test_what_was_acknowledged_at_a_second_attempt_and_is_gone_is_lost() -> None:
    result = check(final(sent_often("ok", 4, 2), WHOLE))
    assert kinds(result) == ["lost-write"]


def transaction(told: Story, *, at: float = 5, kind: str = "ok", decision: str = "commit") -> Story:
    """Message 104, which its sender commits or rolls back."""
    extra = {"transaction": decision, "told": "later"}
    return told.row("send", at, value=104, kind=kind, process=9, extra=extra)


def settled(told: Story, kind: str = "ok") -> Story:
    return told.row("settle", 64, kind=kind, process=10)


def test_a_transaction_comes_when_the_brokers_have_decided_it() -> None:
    told = settled(transaction(good()))
    result = check(final(told, [*WHOLE, (4, 104)]))
    assert result.valid is True
    assert result.anomalies == () and result.notes == ()
    assert result.counts["acknowledged-count"] == 4


def test_a_transaction_that_was_committed_and_never_came_is_lost() -> None:
    result = check(final(settled(transaction(good())), WHOLE))
    assert kinds(result) == ["lost-write"]
    assert result.valid is False


@pytest.mark.parametrize("kind", ["fail", "none"])
def test_nobody_knows_what_is_lost_while_brokers_have_not_decided(kind: str) -> None:
    told = transaction(good())
    result = check(final(told if kind == "none" else settled(told, kind), WHOLE))
    assert result.valid == "unknown" and result.anomalies == ()
    assert "1 transactions were committed, and no broker said" in result.notes[0]


def test_what_brokers_gave_up_asking_about_is_not_lost() -> None:
    """transactionCheckMax: they put it aside, and it was never committed."""
    told = transaction(good()).row("settle", 64, process=10, extra={"discarded": 1})
    assert check(final(told, WHOLE)).valid == "unknown"


def test_a_transaction_that_was_rolled_back_and_was_read_is_a_phantom() -> None:
    told = settled(transaction(good(), kind="fail", decision="rollback"))
    result = check(final(told, [*WHOLE, (4, 104)]))
    assert kinds(result) == ["phantom"]
    assert result.valid is False


def test_a_transactions_place_may_be_later_than_what_was_sent_after_it() -> None:
    told = send(transaction(good()), 105, 6, 4, process=4)
    assert check(final(settled(told), [*WHOLE, (4, 105), (5, 104)])).valid is True


def test_a_send_that_overtakes_an_earlier_one_is_found_beside_transactions() -> None:
    told = send(transaction(good()), 105, 6, 5, process=4)
    send(told, 106, 8, 4, process=5)
    result = check(final(settled(told), [*WHOLE, (4, 106), (5, 105), (6, 104)]))
    assert "reordered" in kinds(result)


@pytest.mark.parametrize(("kind", "decision"), [("ok", "commit"), ("info", "commit")])
def test_a_transaction_may_be_committed_twice(kind: str, decision: str) -> None:
    told = settled(transaction(good(), kind=kind, decision=decision))
    result = check(final(told, [*WHOLE, (4, 104), (5, 104)]))
    assert kinds(result) == ["committed-twice"]
    assert result.valid is True
    assert result.counts["committed-twice-count"] == 1
    assert result.counts["duplicate-count"] == 0


def test_a_transaction_of_which_one_commit_was_sent_may_not_be_there_twice() -> None:
    for again, kind in (([104], "committed-twice"), ([], "duplicate")):
        extra = {"again": again, "twice": []}
        told = transaction(good()).row("settle", 64, process=10, extra=extra)
        assert kinds(check(final(told, [*WHOLE, (4, 104), (5, 104)]))) == [kind]


def test_a_decision_that_is_accepted_after_another_is_found() -> None:
    extra = {"again": [104], "twice": [104]}
    told = transaction(good()).row("settle", 64, process=10, extra=extra)
    result = check(final(told, [*WHOLE, (4, 104)]))
    assert kinds(result) == ["decided-twice"] and result.valid is False
    assert result.anomalies[0].detail["values"] == [104]


def test_what_brokers_leave_open_for_good_is_found() -> None:
    told = transaction(good()).row("settle", 64, kind="fail", process=10, extra={"undecided": 1})
    result = check(final(told, WHOLE))
    assert kinds(result) == ["undecided"] and result.valid is False


def test_what_is_no_transaction_may_not_be_there_twice_beside_one() -> None:
    told = settled(transaction(good()))
    result = check(final(told, [*WHOLE, (4, 104), (5, 103)]))
    assert kinds(result) == ["duplicate"]


def test_a_reader_may_jump_and_begin_anew() -> None:
    told = poll(good(), 6, 0, WHOLE, jump=True, process=8)
    poll(told, 7, 2, WHOLE[2:], jump=True, process=8)
    poll(told, 8, 0, WHOLE[:1], process=8)
    poll(told, 9, 1, [], process=8)
    assert check(final(told, WHOLE)).valid is True


def batched(others: Sequence[int], start: int = 0) -> list[str]:
    """Two messages at 4 and 6, and what a reader says of fillers."""
    told = send(send(good(), 104, 5, 4), 106, 5.1, 6)
    extra = {"from": start, "records": [[4, 104], [6, 106]], "others": [*others]}
    told.row("poll", 6, value=start, extra=extra, process=8)
    poll(told, 7, 8, [], process=8)
    return kinds(check(told))


def test_fillers_fill_the_gaps_between_messages() -> None:
    assert "poll-skip" not in batched([2, 3, 5, 7], start=2)
    for wrong in ([2, 3, 5], [2, 3, 7], [3, 5, 7], []):
        assert "poll-skip" in batched(wrong, start=2)


@pytest.mark.parametrize(("start", "kind"), [(3, "poll-skip"), (1, "nonmonotonic-poll")])
def test_a_reader_that_goes_on_elsewhere_is_found(start: int, kind: str) -> None:
    told = poll(good(), 6, 0, WHOLE[:2], jump=True, process=8)
    poll(told, 7, start, WHOLE[start:], process=8)
    assert kinds(check(final(told, WHOLE))) == [kind]


def test_concurrent_sends_may_come_in_either_order() -> None:
    told = send(good(), 104, 5, 5, took=2, process=1)
    send(told, 105, 6, 4, took=2, process=4)
    assert check(final(told, [*WHOLE, (4, 105), (5, 104)])).valid is True


def test_a_send_of_unknown_outcome_is_placed_by_its_reader() -> None:
    told = send(good(), 104, 5, None, "info", process=7)
    moved = [(0, 100), (1, 101), (2, 104), (3, 103)]
    result = check(final(told, moved))
    assert "reordered" in kinds(result)


def test_a_send_that_begins_in_the_moment_of_another_ones_end_may_come_before_it() -> None:
    """A tie of clocks puts the call first, as everywhere."""
    told = send(good(), 104, 5, 5, took=1, process=1)
    send(told, 105, 6, 4, process=4)
    assert check(final(told, [*WHOLE, (4, 105), (5, 104)])).valid is True


def test_two_messages_of_one_sender_at_one_offset_are_out_of_order() -> None:
    told = send(send(good(), 104, 5, 4), 105, 6, 4)
    result = check(final(told, [*WHOLE, (4, 105)]))
    assert {"nonmonotonic-send", "shared-offset", "lost-write"} <= set(kinds(result))
