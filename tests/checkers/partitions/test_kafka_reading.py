"""What the judge of partitions reads: other syntaxes, odd processes, and what it leaves out."""

from __future__ import annotations

import json

import pytest

from shalott.checkers.checker import Result
from shalott.checkers.judge import JudgeOfRuns, Limits, make_judge
from shalott.checkers.partitions.kafka import KAFKA, Kafka
from shalott.checkers.reading.entries import EntrySource
from shalott.checkers.reading.own_entries import edn_of_table
from shalott.checkers.reading.shape import shape_of
from shalott.core.errors import UsageError
from tests.checkers.histories import Story
from tests.checkers.partitions.partition_texts import (
    Line,
    call,
    judged,
    named,
    of_kind,
    polled,
    sent,
    text_of,
)
from tests.checkers.partitions.simulated_logs import right_history
from tests.checkers.partitions.simulated_logs import text_of as text_of_operations

pytestmark = pytest.mark.unit


def of_text(text: bytes, dialect: str = "jepsen", limits: Limits | None = None) -> Result:
    source = EntrySource.of_text(text, dialect)
    return make_judge("kafka").judge(source, limits or Limits())


def note(result: Result, word: str) -> str:
    [found] = [note for note in result.notes if word in note]
    return found


def test_in_json_a_key_of_a_poll_is_the_number_that_it_was_sent_to() -> None:
    entries = [
        ("invoke", "send", [["send", 7, "a"]], 0),
        ("fail", "send", [["send", 7, [3, "a"]]], 0),
        ("invoke", "poll", [["poll"]], 1),
        ("ok", "poll", [["poll", {"7": [[3, "a"]]}]], 1),
    ]
    text = "".join(
        json.dumps({"type": type_, "f": f, "value": value, "process": process}) + "\n"
        for type_, f, value, process in entries
    )
    result = of_text(text.encode(), "json")
    [told] = of_kind(result, "G1a")
    assert told.summary == (
        'key 7: "a" (offset 3) was polled at line 4, though the operation that sent it failed'
        " (line 2)"
    )
    assert told.operations == (4, 2)


def test_values_and_keys_may_be_anything() -> None:
    lines = [
        *call(0, "send", '[[:send "k" {:id 1}]]', "ok", '[[:send "k" [0 {:id 1}]]]'),
        *call(0, "send", "[[:send nil 1.5]]", "ok", "[[:send nil [0 1.5]]]"),
        *polled(1, '"k" [[0 {:id 1}]] nil [[0 1.5] [1 #{2}]]'),
    ]
    [told] = judged(lines).anomalies
    assert told.summary.startswith("key nil: #{2} (offset 1) was polled at index 5, and no")


def test_an_answer_without_a_value_repeats_the_invocation() -> None:
    lines: list[Line] = [
        (0, "invoke", "send", "[[:send :x 1]]"),
        (0, "info", "send", "nil"),
        (1, "invoke", "send", "[[:send :x 2]]"),
        *polled(2, ":x [[0 1] [1 2]]"),
    ]
    assert judged(lines).valid is True  # neither is known to have failed
    assert judged(lines).counts["unknown-count"] == 2


def test_a_process_that_goes_on_after_an_open_operation_is_noted() -> None:
    lines: list[Line] = [
        (0, "invoke", "send", "[[:send :x 1]]"),
        *sent(0, ":x [1 2]"),
        *polled(1, ":x [[0 1] [1 2]]"),
    ]
    result = judged(lines)
    assert result.valid is True
    assert note(result, "had ended").startswith("1 time a process began an operation before")


def test_a_completion_without_an_invocation_began_at_no_known_time() -> None:
    lines: list[Line] = [(1, "ok", "poll", "[[:poll {:x [[0 1]]}]]"), *sent(0, ":x [0 1]")]
    result = judged(lines)
    assert result.detail["broken"] == ["G1c-realtime"]  # it ended before the send began
    assert note(result, "no invocation") == "1 completion has no invocation."
    late: list[Line] = [*sent(0, ":x [0 1]"), (1, "ok", "poll", "[[:poll {:x [[0 1]]}]]")]
    assert judged(late).valid is True


def test_without_processes_what_a_client_sees_between_polls_is_not_judged() -> None:
    entries = [
        "{:type :ok, :f :send, :value [[:send :x [0 1]] [:send :x [1 2]]]}",
        "{:type :ok, :f :poll, :value [[:poll {:x [[0 1] [1 2]]}]]}",
        "{:type :ok, :f :poll, :value [[:poll {:x [[0 1]]}]]}",
    ]
    result = of_text("\n".join(entries).encode())
    assert result.valid is True
    assert "between two polls was not judged" in note(result, "process")


def test_what_it_does_not_read_is_left_out_with_a_note() -> None:
    lines = [*sent(0, ":x [0 1]"), *call(1, "nap", "1", "ok", "1"), *polled(0, ":x [[0 1]]")]
    result = judged(lines)
    assert result.valid is True
    assert note(result, "does not read").startswith("2 entries do what this judge does not read")
    odd = [*sent(0, ":x [0 1]"), *call(1, "poll", "nil", "ok", "7"), *polled(0, ":x [[0 1]]")]
    result = judged(odd)
    assert result.valid == "unknown"
    assert note(result, "micro-operations").startswith("1 value is no micro-operations, the first")
    assert judged([*odd, *polled(0, ":x [[1 2]]")]).valid is False  # what is read proves enough


def test_crashes_and_debugging_say_nothing_and_the_nemesis_is_left_out() -> None:
    lines = [
        *sent(0, ":x [0 1]"),
        *call(0, "crash", "nil", "info", "nil"),
        *call(1, "debug-topic-partitions", "[:x]", "ok", "{:x {:leader 1}}"),
        *polled(2, ":x [[0 1]]"),
    ]
    nemesis = b'{:process :nemesis :type :info :f :poll :value "all" :time 1 :index 99}\n'
    result = of_text(text_of(lines) + nemesis)
    assert result.valid is True and not any("left out" in note for note in result.notes)
    assert result.counts["other-count"] == 2


def test_why_outcomes_are_unknown_is_told() -> None:
    text = text_of([*sent(0, ":x 1", type_="info"), *sent(1, ":x 2"), *polled(2, ":x [[0 2]]")])
    text = text.replace(b":type :info", b":type :info :error [:timeout 5]")
    result = of_text(text)
    assert note(result, "because of") == "Outcomes are unknown because of [:timeout 5] (1)."


def test_what_a_subscriber_polls_twice_is_counted() -> None:
    lines = [
        *named(1, "subscribe", ":x"),
        *sent(0, ":x [0 1]"),
        *polled(1, ":x [[0 1]]"),
        *polled(1, ":x [[0 1]]"),
    ]
    assert judged(lines).counts["consumed-again-count"] == 1
    assert judged(lines[2:]).counts["consumed-again-count"] == 0


def test_in_a_history_that_is_cut_off_what_was_not_polled_is_no_error() -> None:
    text = text_of([*sent(0, ":x [0 1]"), *polled(0, ":x [[0 1]]"), *sent(0, ":x [1 2]")])
    assert of_text(text).detail["broken"] == ["unseen"]
    cut = of_text(text + b"{:index 6 :time 6 :process 0 :type :inv")
    assert cut.valid == "unknown" and "cut off" in cut.notes[0]
    assert cut.detail["permitted"] == ["unseen"]


def test_limits_end_in_unknown() -> None:
    text = text_of_operations(right_history(1))
    little = of_text(text, limits=Limits(memory_limit_bytes=100_000))
    assert little.valid == "unknown" and "memory" in little.notes[0]
    late = of_text(text, limits=Limits(time_limit_s=1e-9))
    assert late.valid == "unknown" and "time" in late.notes[0]


def test_options_are_checked() -> None:
    with pytest.raises(UsageError, match="sub_via is auto or assign or subscribe, not 'group'"):
        make_judge("kafka:sub_via=group")


def test_a_history_of_sends_and_polls_wants_this_judge() -> None:
    assert KAFKA.wants(shape_of([("ok", "txn", (("send", 1, (0, 5)), ("poll",)))]))
    assert not KAFKA.wants(shape_of([("ok", "txn", (("append", 1, 5), ("r", 1, None)))]))
    assert not KAFKA.wants(shape_of([("ok", "poll", 5)]))


@pytest.mark.parametrize(("keys", "valid"), [(None, False), ([2], False), ([2, 1], True)])
def test_a_run_tells_what_a_group_moved_while_a_client_polled(
    keys: list[int] | None, valid: bool
) -> None:
    """Judged in the run, and read again from where it is stored."""
    polls = [["poll", {"1": [[0, 5], [1, 6]]}], ["poll", {"1": [[0, 5]]}]]
    moved = {} if keys is None else {"rebalance_log": [{"keys": keys}]}
    story = Story("")
    for at, value in enumerate((5, 6)):
        story.row("send", at, extra={"value": [["send", 1, [at, value]]]})
    story.row("poll", 3, process=1, extra={"value": polls, **moved})
    history = story.history()
    told = JudgeOfRuns(Kafka()).check(history)
    again = EntrySource.of_text(b"".join(edn_of_table(history.ops)))
    for result in (told, Kafka().judge(again, Limits())):
        assert result.valid is valid
        assert ("int-nonmonotonic-poll-count" in result.counts) is not valid
