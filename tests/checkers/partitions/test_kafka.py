"""The cases of jepsen.tests.kafka-test, as histories of our own."""

from __future__ import annotations

import pytest

from shalott.checkers.judge import Limits, make_judge
from shalott.checkers.reading.entries import EntrySource
from tests.checkers.partitions.partition_texts import (
    Line,
    call,
    judged,
    kinds,
    named,
    of_kind,
    polled,
    sent,
    text_of,
)

pytestmark = pytest.mark.unit


def details(lines: list[Line], kind: str, options: str = "") -> list[dict[str, object]]:
    """Of a kind that is an error, each case's own fields and where it stands."""
    return [
        {**each.detail, "at": each.operations} for each in of_kind(judged(lines, options), kind)
    ]


# --- orders ---------------------------------------------------------------------------------------


def test_an_order_counts_known_offsets_and_one_value_of_each() -> None:
    lines = [
        *polled(0, ":x [[0 :a] [1 :b]]", f="txn"),
        # It is unknown, but :b of it was read: so all of it was committed.
        *sent(1, ":x [1 :c]", ":x [3 :b]", ":x [4 :d]", type_="info"),
        *sent(2, ":x :a", type_="info"),
        *polled(3, ":x [[1 :c] [4 :d]]"),
    ]
    assert details(lines, "inconsistent-offsets") == [
        {"key": ":x", "offset": 1, "index": 1, "values": [":b", ":c"], "at": ()}
    ]
    # :c stands nowhere else, so it has offset 1, and :b offset 3.
    assert details(lines, "int-poll-skip") == [
        {"key": ":x", "values": [":a", ":b"], "delta": 2, "skipped": [":c"], "at": (1,)},
        {"key": ":x", "values": [":c", ":d"], "delta": 2, "skipped": [":b"], "at": (7,)},
    ]


def test_two_acknowledged_sends_do_not_have_one_offset() -> None:
    lines = [*sent(379, "11 [537 641]"), *sent(363, "11 [537 645]")]
    assert details(lines, "inconsistent-offsets") == [
        {"key": "11", "offset": 537, "index": 0, "values": ["641", "645"], "at": ()}
    ]


def test_an_unknown_send_is_believed_when_another_one_of_its_operation_was_polled() -> None:
    lines = [*sent(0, ":x [0 1]", ":y 1", type_="info"), *sent(1, ":x [0 2]")]
    assert not details(lines, "inconsistent-offsets")
    lines += polled(2, ":y [[5 1]]")
    assert details(lines, "inconsistent-offsets") == [
        {"key": ":x", "offset": 0, "index": 0, "values": ["1", "2"], "at": ()}
    ]


# --- reads of what is not there ----------------------------------------------------------------


def test_a_failed_send_is_not_polled() -> None:
    lines = [*sent(0, ":x 2", ":y 3", type_="fail"), *polled(1, ":x [[0 2]]")]
    assert details(lines, "G1a") == [{"key": ":x", "value": "2", "offset": 0, "at": (3, 1)}]


def test_a_transaction_does_not_poll_its_own_sends() -> None:
    lines = call(
        0, "txn", "[[:send :x :a] [:poll]]", "ok", "[[:send :x [0 :a]] [:poll {:x [[0 :a]]}]]"
    )
    assert details(lines, "precommitted-read") == [
        {"key": ":x", "value": ":a", "offset": 0, "at": (1,)}
    ]


def test_what_nothing_sent_is_not_polled() -> None:
    lines = [*sent(0, ":x [0 1]"), *polled(1, ":x [[0 1] [1 7]]")]
    assert details(lines, "unexpected") == [{"key": ":x", "value": "7", "offset": 1, "at": (3,)}]


# --- lost writes ----------------------------------------------------------------------------------


def test_what_stands_before_a_polled_message_is_polled_too() -> None:
    lines = [
        *sent(0, ":x [0 :a]"),
        *sent(0, ":x [1 :b]", ":x [3 :d]"),
        *sent(1, ":x :c", type_="info"),
        *polled(0, ":x [[2 :c]]"),
    ]
    assert details(lines, "lost-write") == [
        {"key": ":x", "value": ":a", "index": 0, "max-read-index": 2, "at": (7, 1)},
        {"key": ":x", "value": ":b", "index": 1, "max-read-index": 2, "at": (7, 3)},
    ]


def test_a_message_whose_offset_another_one_has_is_lost_too() -> None:
    lines = [
        *sent(0, ":x [0 :a]"),
        *sent(0, ":x [0 :b]", ":x [2 :c]"),
        *polled(0, ":x [[0 :b] [2 :c]]"),
    ]
    assert details(lines, "lost-write") == [
        {"key": ":x", "value": ":a", "index": 0, "max-read-index": 1, "at": (5, 1)}
    ]


def test_an_unknown_send_is_lost_only_if_its_operation_is_known_to_be_committed() -> None:
    begin = [*sent(0, ":x :a", ":y [0 :b]", type_="info"), *sent(1, ":y :c", type_="info")]
    end = polled(3, ":y [[1 :c]]")
    assert not details([*begin, *end], "lost-write")
    assert details([*begin, *polled(2, ":x [[0 :a]]"), *end], "lost-write") == [
        {"key": ":y", "value": ":b", "index": 0, "max-read-index": 1, "at": (7, 1)}
    ]


# --- polls of a process -----------------------------------------------------------------------

_ONE_TWO = polled(0, ":x [[1 :a] [2 :b]]")
_THREE, _FOUR = polled(1, ":x [[3 :c]]"), polled(0, ":x [[4 :d]]")
_SIX, _SEVEN = sent(2, ":x [6 :f]"), polled(0, ":x [[7 :g]]")
_SENDS = sent(3, ":x :a", ":x :b", ":x :c", ":x :d", ":x :g", type_="info")
_TWO_SKIPS = [
    (["2", ":b", ":d"], [":c"]),
    (["2", ":d", ":g"], [":f"]),
]


def _skips(lines: list[Line], options: str = "") -> list[tuple[list[object], object]]:
    return [
        ([str(each["delta"]), *each["values"]], each["skipped"])  # type: ignore[misc]
        for each in details(lines, "poll-skip", options)
    ]


@pytest.mark.parametrize(
    ("first", "second", "skips"),
    [
        ([], [], True),
        (named(0, "assign", ":x :y"), named(0, "assign", ":x :y"), True),
        (named(0, "subscribe", ":y"), named(0, "assign", ":y", "info"), False),
        (named(0, "subscribe", ":x :y"), named(0, "assign", ":x :y"), True),
    ],
    ids=["no-assignment", "kept", "given-up", "kept-subscribed"],
)
def test_a_process_goes_on_where_it_was_unless_it_gave_the_key_up(
    first: list[Line], second: list[Line], skips: bool
) -> None:
    lines = [*_ONE_TWO, *_THREE, *first, *_FOUR, *second, *_SIX, *_SEVEN, *_SENDS]
    assert _skips(lines, "sub_via=assign") == (_TWO_SKIPS if skips else [])


def _sends_to(count: int) -> list[Line]:
    return sent(0, *(f":x [{number} {number}]" for number in range(count)))


def test_a_poll_that_failed_leaves_the_process_where_it_was() -> None:
    lines = [
        *_sends_to(3),
        *polled(1, ":x [[0 0]]", f="txn"),
        *polled(1, ":x [[1 1] [2 2]]", f="txn", type_="fail"),
        *polled(1, ":x [[1 1] [2 2]]", f="txn", type_="info"),
        *polled(1, ":x [[1 1] [2 2]]", f="txn"),
    ]
    result = judged(lines)
    assert result.valid is True and not kinds(result)


@pytest.mark.parametrize("type_", ["fail", "info"])
def test_a_poll_after_one_that_failed_does_not_go_on_behind_it(type_: str) -> None:
    lines = [
        *_sends_to(6),
        *polled(1, ":x [[0 0]]", f="txn"),
        *polled(1, ":x [[1 1] [2 2]]", f="txn", type_="fail"),
        *polled(1, ":x [[3 3] [4 4]]", f="txn", type_=type_),
        *polled(1, ":x [[5 5]]", f="txn"),
    ]
    found = details(lines, "poll-skip")
    assert [(each["delta"], each["skipped"], each["at"]) for each in found] == [
        (3, ["1", "2"], (3, 7)),
        (5, ["1", "2", "3", "4"], (3, 9)),
    ]


_FOUR_SENT = sent(0, ":x :a", ":x :b", ":x :c", ":x :d")


@pytest.mark.parametrize("f", ["assign", "subscribe"])
@pytest.mark.parametrize(("keys", "is_told"), [(":x :y", True), (":y", False)])
def test_a_process_does_not_go_back_unless_it_gave_the_key_up(
    f: str, keys: str, is_told: bool
) -> None:
    again = polled(0, ":x [[2 :b] [3 :c] [4 :d]]")
    lines = [*_FOUR_SENT, *polled(0, ":x [[1 :a] [2 :b] [3 :c]]"), *named(0, f, keys), *again]
    told = {"key": ":x", "values": [":c", ":b"], "delta": -1, "at": (3, 7)}
    assert details(lines, "nonmonotonic-poll", "sub_via=assign") == [told] * is_told
    straight = [*lines[:4], *again]
    assert details(straight, "nonmonotonic-poll") == [{**told, "at": (3, 5)}]


def test_who_seeks_to_the_beginning_may_go_back() -> None:
    seek = text_of(named(0, "assign", ":x")).replace(b":value", b":seek-to-beginning? true :value")
    before = text_of([*_FOUR_SENT, *polled(0, ":x [[1 :a] [2 :b] [3 :c]]")])
    after = text_of(polled(0, ":x [[1 :a] [2 :b] [3 :c] [4 :d]]"))
    judge = make_judge("kafka")
    assert judge.judge(EntrySource.of_text(before + seek + after), Limits()).valid is True
    assert judge.judge(EntrySource.of_text(before + after), Limits()).valid is False


@pytest.mark.parametrize("f", ["assign", "subscribe"])
@pytest.mark.parametrize(
    ("keys", "type_", "is_told"),
    [(":x :y", "ok", True), (":y", "ok", False), (":y", "info", False), (":y", "fail", True)],
)
def test_a_process_sends_in_order(f: str, keys: str, type_: str, is_told: bool) -> None:
    late, early = sent(0, ":x [3 :c]", ":x [4 :d]"), sent(0, ":x [1 :a]", ":x [2 :b]")
    told = {"key": ":x", "values": [":d", ":a"], "delta": -3, "at": (1, 5)}
    lines = [*late, *named(0, f, keys, type_), *early]
    assert details(lines, "nonmonotonic-send") == [told] * is_told
    assert details([*late, *early], "nonmonotonic-send") == [{**told, "at": (1, 3)}]


# --- within an operation ----------------------------------------------------------------------


def test_the_polls_of_an_operation_skip_nothing() -> None:
    lines = [
        *sent(1, ":x :a", ":x :b", ":x :d", type_="info"),
        *polled(0, ":x [[1 :a] [4 :d]]"),
        *polled(2, ":x [[1 :a]]", ":x [[4 :d]]"),
        *polled(3, ":x [[2 :b]]"),
    ]
    told = {"key": ":x", "values": [":a", ":d"], "delta": 2, "skipped": [":b"]}
    assert details(lines, "int-poll-skip") == [{**told, "at": (3,)}, {**told, "at": (5,)}]


def test_a_rebalance_within_an_operation_excuses_its_polls_of_the_key() -> None:
    lines = [*_sends_to(3), *polled(0, ":x [[0 0] [2 2]]", type_="ok"), *polled(1, ":x [[1 1]]")]
    text = text_of(lines)
    poll = b":f :poll :value [[:poll {:x [[0 0] [2 2]]}]]"
    assert poll in text

    def told(log: bytes) -> set[str]:
        moved = text.replace(poll, log + poll)
        return kinds(make_judge("kafka").judge(EntrySource.of_text(moved), Limits()))

    assert "int-poll-skip" in told(b"")
    assert "int-poll-skip" in told(b":rebalance-log [{:keys [:y]}] ")
    assert "int-poll-skip" not in told(b":rebalance-log [{:keys [:y]} {:keys [:x]}] ")


def test_the_sends_of_others_may_come_between_those_of_an_operation() -> None:
    lines = [
        *sent(0, ":x [1 :a]", ":x :c"),
        *sent(1, ":x :b", type_="info"),
        *polled(2, ":x [[2 :b] [3 :c]]"),
        *polled(3, ":x [[1 :a]]"),
    ]
    result = judged(lines)
    assert result.valid is True
    assert result.counts["int-send-skip-count"] == 1
    assert result.detail["permitted"] == ["int-send-skip"]
    [note] = [note for note in result.notes if note.startswith("int-send-skip")]
    assert ":a (offset 1) and next :c (offset 3), and :b (offset 2) came between" in note


def test_the_polls_of_an_operation_do_not_go_back() -> None:
    lines = [
        *sent(0, ":x :a", ":x :b", ":x :c", type_="info"),
        *polled(0, ":x [[3 :c] [1 :a]]"),
        *polled(0, ":x [[2 :b] [3 :c]]", ":x [[3 :c]]"),
    ]
    assert details(lines, "int-nonmonotonic-poll") == [
        {"key": ":x", "values": [":c", ":a"], "delta": -2, "at": (3,)},
        {"key": ":x", "values": [":c", ":c"], "delta": 0, "at": (5,)},
    ]


def test_the_sends_of_an_operation_stand_in_order() -> None:
    lines = [
        *sent(0, ":x [3 :c]", ":x [1 :a]"),
        *sent(0, ":y :d", ":y :b", type_="info"),
        *sent(1, ":y :c", type_="info"),
        *polled(0, ":y [[2 :b] [3 :c] [4 :d]]"),
    ]
    assert details(lines, "int-nonmonotonic-send") == [
        {"key": ":x", "values": [":c", ":a"], "delta": -1, "at": (1,)},
        {"key": ":y", "values": [":d", ":b"], "delta": -2, "at": (3,)},
    ]


# --- duplicates -------------------------------------------------------------------------------


def test_a_message_stands_at_one_offset() -> None:
    lines = [
        *sent(0, ":x [1 :a]"),
        *sent(1, ":x :b", type_="info"),
        *polled(2, ":x [[2 :b] [3 :a]]"),
    ]
    assert details(lines, "duplicate") == [
        {"key": ":x", "value": ":a", "offsets": [1, 3], "at": (5, 1)}
    ]


def test_every_duplicate_is_told_though_all_share_two_offsets() -> None:
    lines = [
        line
        for value in range(10)
        for line in (*sent(0, f":x [0 {value}]"), *polled(1, f":x [[1 {value}]]"))
    ]
    result = judged(lines)
    assert result.counts["duplicate-count"] == 10
    values = [str(value) for value in range(10)]
    assert details(lines, "inconsistent-offsets") == [
        {"key": ":x", "offset": 0, "index": 0, "values": values, "at": ()},
        {"key": ":x", "offset": 1, "index": 1, "values": values, "at": ()},
    ]


def test_polls_that_failed_tell_where_messages_stand_and_sends_that_failed_do_not() -> None:
    lines = [
        *sent(0, ":x [1 0]"),
        *sent(0, ":x [2 1]", type_="fail"),
        *polled(1, ":x [[11 0] [12 1]]", type_="fail"),
    ]
    assert [(each["value"], each["offsets"]) for each in details(lines, "duplicate")] == [
        ("0", [1, 11])
    ]


# --- how far behind -----------------------------------------------------------------------------


def _lag_history() -> list[Line]:
    poll = "[[:poll]]"
    return [
        *named(0, "assign", ":x"),
        *call(0, "poll", poll, "ok", "[[:poll {:x []}]]"),
        *sent(0, ":x [0 :a]"),
        *call(0, "poll", poll, "ok", "[[:poll {:x []}]]"),  # called at 6, and 0 is there from 5
        *sent(1, ":x [2 :c]", ":x [3 :d]"),
        *call(0, "poll", poll, "ok", "[[:poll]]"),
        *call(0, "poll", poll, "ok", "[[:poll {:x [[0 :a] [1 :b]]}]]"),  # 2 is there from 9
        *named(0, "assign", ":x :y"),
        *call(0, "poll", poll, "ok", "[[:poll {}]]"),
        *named(0, "assign", ":y"),
        *named(0, "assign", ":x"),  # it begins before the first message again
        *call(0, "poll", poll, "ok", "[[:poll {}]]"),
        *polled(0, ":x [[0 :a] [1 :b]]", ":x [[2 :c] [3 :d]]"),
        *sent(1, ":x :b", type_="info"),
    ]


@pytest.mark.parametrize(
    ("entries", "worst"),
    [(4, None), (8, (6, 1)), (12, (10, 5)), (18, (16, 7)), (24, (22, 17)), (28, (22, 17))],
)
def test_a_poll_is_behind_since_what_it_last_saw_was_not_the_newest(
    entries: int, worst: tuple[int, int] | None
) -> None:
    lag = judged(_lag_history()[:entries]).detail["worst-realtime-lag"]
    if worst is None:
        assert lag == {}
    else:
        assert lag == {"time-ns": worst[0], "process": 0, "key": ":x", "lag-ns": worst[1]}


@pytest.mark.parametrize(("entries", "unseen"), [(2, 0), (4, 2), (6, 1), (8, 0)])
def test_acknowledged_messages_are_polled_in_the_end(entries: int, unseen: int) -> None:
    lines = [
        *call(0, "poll", "[[:poll]]", "ok", "[[:poll {}]]"),
        *sent(0, ":x [0 :a]", ":x [1 :b]"),
        *polled(0, ":x [[0 :a]]"),
        *polled(0, ":x [[1 :b]]"),
    ]
    result = judged(lines[:entries])
    assert result.counts["unseen-count"] == unseen
    assert result.valid is (unseen == 0)
    assert [(each.detail["count"], each.detail["messages"]) for each in result.anomalies] == (
        [(unseen, [":a", ":b"][2 - unseen :])] if unseen else []
    )


def test_a_history_without_sends_and_polls_is_unknown() -> None:
    result = judged(named(0, "assign", ":x"))
    assert result.valid == "unknown" and "nothing to judge" in result.notes[0]


# --- what is an error -------------------------------------------------------------------------


def test_clients_that_subscribe_may_skip_and_go_back_between_polls() -> None:
    lines = [*_sends_to(3), *polled(1, ":x [[0 0]]"), *polled(1, ":x [[2 2]]")]
    lines += [*polled(1, ":x [[1 1]]")]
    assert judged(lines).detail["broken"] == ["poll-skip", "nonmonotonic-poll"]
    for options, subscribed in (("", True), ("sub_via=subscribe", False)):
        begin = named(2, "subscribe", ":x") if subscribed else []
        result = judged([*begin, *lines], options)
        assert result.valid is True
        assert result.detail["permitted"] == ["poll-skip", "nonmonotonic-poll"]
    subscribed = [*named(2, "subscribe", ":x"), *lines]
    assert judged(subscribed, "sub_via=assign").valid is False


# --- cycles -----------------------------------------------------------------------------------


def _txns(*operations: tuple[int, str, str]) -> list[Line]:
    """Transactions (process, asked, answered) that all go on at once."""
    return [
        *((process, "invoke", "txn", f"[{asked}]") for process, asked, _ in operations),
        *((process, "ok", "txn", f"[{answered}]") for process, _, answered in operations),
    ]


_BOTH_KEYS = _txns(
    (0, "[:send :x :a] [:send :y :a]", "[:send :x [0 :a]] [:send :y [1 :a]]"),
    (1, "[:send :x :b] [:send :y :b]", "[:send :x [1 :b]] [:send :y [0 :b]]"),
)
_READ_EACH_OTHER = _txns(
    (0, "[:send :x :a] [:poll]", "[:send :x [0 :a]] [:poll {:y [[0 :b]]}]"),
    (1, "[:send :y :b] [:poll]", "[:send :y [0 :b]] [:poll {:x [[0 :a]]}]"),
)
_WRITTEN_AND_READ = _txns(
    (0, "[:send :x :a] [:send :y :c]", "[:send :x [0 :a]] [:send :y [2 :c]]"),
    (1, "[:poll] [:send :y :b]", "[:poll {:x [[0 :a]]}] [:send :y [1 :b]]"),
)
_NOTHING_UNSEEN = polled(9, ":x [[0 :a]] :y [[1 :b] [2 :c]]")


def test_the_sends_of_two_transactions_may_be_told_in_two_orders() -> None:
    lines = [*_BOTH_KEYS, *polled(9, ":x [[0 :a] [1 :b]] :y [[0 :b] [1 :a]]")]
    assert kinds(judged(lines)) == set()
    result = judged(lines, "ww_deps=true")
    assert result.valid is True and kinds(result) == {"G0"}
    [note] = [note for note in result.notes if note.startswith("G0")]
    assert "T1 sent what stands before :b (offset 1) of key :x, which T2 sent" in note
    assert "T2 sent what stands before :a (offset 1) of key :y, which T1 sent" in note


def test_two_transactions_do_not_poll_each_others_sends() -> None:
    result = judged(_READ_EACH_OTHER)
    assert result.detail["broken"] == ["G1c"]
    assert [each.operations for each in of_kind(result, "G1c")] == [(2, 3)]
    [told] = of_kind(result, "G1c")
    assert told.summary == (
        "T1 (index 2), T2 (index 3): T1 sent :a (offset 0) of key :x, which T2 polled,"
        " T2 sent :b (offset 0) of key :y, which T1 polled, so each comes before itself"
    )


def test_a_cycle_by_the_order_of_sends_is_told_and_no_error() -> None:
    lines = [*_WRITTEN_AND_READ, *_NOTHING_UNSEEN]
    assert judged(lines).valid is True and not kinds(judged(lines))
    result = judged(lines, "ww_deps=true")
    assert result.valid is True and kinds(result) == {"G1c"}


def test_a_message_is_not_polled_before_its_send_began() -> None:
    lines = [*polled(0, ":x [[0 :a]]"), *sent(1, ":x [0 :a]")]
    result = judged(lines)
    assert result.detail["broken"] == ["G1c-realtime"]
    [told] = result.anomalies
    assert set(told.detail["edges"]) == {"wr", "realtime"}
    assert "had ended before" in told.summary and "(index 2)" in told.summary


def test_a_process_does_not_poll_what_it_sends_later() -> None:
    lines = [*polled(0, ":x [[0 :a]]"), *sent(0, ":x [0 :a]")]
    assert "G1c-process" in judged(lines).detail["broken"]


def test_an_operation_that_is_unknown_ends_at_no_time() -> None:
    lines = [
        *polled(0, ":x [[0 :a]]", type_="info"),
        *sent(1, ":x [0 :a]"),
        *polled(2, ":x [[0 :a]]"),
    ]
    assert judged(lines).valid is True


def test_orders_of_writes_and_time_together() -> None:
    """The later send stands before the earlier one."""
    lines = [*sent(0, ":x [1 :a]"), *sent(1, ":x [0 :b]"), *polled(2, ":x [[0 :b] [1 :a]]")]
    result = judged(lines, "ww_deps=true")
    assert result.valid is True and kinds(result) == {"G0-realtime"}


_SKEW = _txns(
    (0, "[:poll] [:send :y :c]", "[:poll {:x [[0 :a]]}] [:send :y [1 :c]]"),
    (1, "[:poll] [:send :x :d]", "[:poll {:y [[0 :b]]}] [:send :x [1 :d]]"),
)


def test_what_was_not_polled_yet_makes_cycles_if_it_is_asked_for() -> None:
    begin = sent(5, ":x [0 :a]", ":y [0 :b]")
    end = polled(9, ":x [[0 :a] [1 :d]] :y [[0 :b] [1 :c]]")
    lines = [*begin, *_SKEW, *end]
    assert judged(lines).valid is True
    assert judged(lines, "rw_deps=true").detail["broken"] == ["G2-item"]
    fractured = _txns(
        (0, "[:send :x :c] [:send :y :d]", "[:send :x [1 :c]] [:send :y [1 :d]]"),
        (1, "[:poll]", "[:poll {:x [[0 :a]] :y [[0 :b] [1 :d]]}]"),
    )
    lines = [*begin, *fractured, *polled(9, ":x [[0 :a] [1 :c]] :y [[0 :b] [1 :d]]")]
    assert judged(lines).valid is True
    result = judged(lines, "rw_deps=true")
    assert result.detail["broken"] == ["G-single-item"]
    [told] = result.anomalies
    assert "polled up to what stands before :c (offset 1) of key :x, which" in told.summary


def test_a_poll_behind_time_makes_a_cycle_if_it_is_asked_for() -> None:
    lines = [
        *sent(0, ":x [0 :a]"),
        *sent(0, ":x [1 :b]"),
        *polled(1, ":x [[0 :a]]"),
        *polled(1, ":x [[1 :b]]"),
    ]
    assert judged(lines).valid is True
    assert judged(lines, "rw_deps=true").detail["broken"] == ["G-single-item-realtime"]
