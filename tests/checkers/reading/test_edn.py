"""Jepsen's EDN histories: what is read, and what is said of a malformed one."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from shalott.checkers.history.column_values import exact
from shalott.checkers.history.concurrent import FORM, INTEGER, ConcurrentHistory
from shalott.checkers.reading import read_history
from shalott.checkers.reading.edn import EdnError, decode, encode
from shalott.checkers.reading.text_history import read_text as read_pieces
from shalott.core.errors import UnreadableHistory
from tests.checkers.reading.written import is_whole, read_text, seen

pytestmark = pytest.mark.unit

REGISTER = """\
{:index 0, :process 0, :type :invoke, :f :write, :value 3, :time 10}
{:index 1, :process 1, :type :invoke, :f :read, :value nil, :time 12}
{:index 2, :process :nemesis, :type :info, :f :start-partition, :value {"n1" #{"n2"}}, :time 13}
{:index 3, :process 0, :type :ok, :f :write, :value 3, :time 20}
{:index 4, :process 1, :type :ok, :f :read, :value 3, :time 21}
{:index 5, :process 0, :type :invoke, :f :cas, :value [3 4], :time 22}
{:index 6, :process 1, :type :invoke, :f :cas, :value [1 2], :time 23}
{:index 7, :process 1, :type :fail, :f :cas, :value [1 2], :time 24}
{:index 8, :process 0, :type :info, :f :cas, :value [3 4], :error :timeout, :time 25}
{:index 9, :process 5, :type :invoke, :f :read, :value nil, :time 26}
"""
REGISTER_SEEN = [
    (0, "write", 3, 3, "ok", 0, 2, ""),
    (1, "read", None, 3, "ok", 1, 3, ""),
    (0, "cas", (3, 4), None, "info", 4, None, ""),
    (1, "cas", (1, 2), (1, 2), "fail", 5, 6, ""),
    (5, "read", None, None, "info", 7, None, ""),
]


def read(directory: Path, text: str | bytes, **how: object) -> ConcurrentHistory:
    history = read_text(directory, text, "history.edn", **how)
    assert isinstance(history, ConcurrentHistory)
    assert is_whole(history)
    return history


def complaint(directory: Path, text: str | bytes, **how: object) -> str:
    with pytest.raises(UnreadableHistory) as caught:
        read(directory, text, **how)
    return str(caught.value).replace(f"{directory}/", "")


def test_invocations_and_completions_are_paired_by_process(tmp_path: Path) -> None:
    history = read(tmp_path, REGISTER)
    assert seen(history) == REGISTER_SEEN
    assert history.dialect == "jepsen"
    assert history.notes == ()
    assert history.place_name == "line"
    assert history.place.tolist() == [1, 2, 6, 7, 10]


def test_clock_times_are_kept_where_every_entry_has_one(tmp_path: Path) -> None:
    history = read(tmp_path, REGISTER)
    assert history.call_ns is not None and history.ret_ns is not None
    assert history.call_ns.tolist() == [10, 12, 22, 23, 26]
    assert history.ret_ns.tolist() == [20, 21, 25, 24, -1]
    assert read(tmp_path, REGISTER.replace(", :time 21", "")).call_ns is None


@pytest.mark.parametrize(
    "text",
    [
        "[" + REGISTER + "]",
        "(" + REGISTER.replace("\n", " ") + ")\n",
        REGISTER.replace("{:index", "#jepsen.history.Op{:index"),
        REGISTER.replace(", ", "\n  "),
        REGISTER.replace("\n", "\r\n"),
        "\ufeff; by hand\n" + REGISTER.replace("{:index", "; one more\n#_ (old [stuff]) {:index"),
        REGISTER.replace(":time", "#_ :x #_ #_ {} [] :time"),
        REGISTER.replace(":time ", ':note "a } \\" ; #_ \\\\", :char \\}, :time '),
        REGISTER.replace(":type :", ':type "').replace(", :f", '", :f'),
        REGISTER[:-1],
    ],
    ids=["vector", "list-on-a-line", "records", "many-lines", "crlf", "comments", "discards",
         "strings", "string-types", "no-newline"],
)  # fmt: skip
def test_one_history_in_many_spellings(tmp_path: Path, text: str) -> None:
    assert seen(read(tmp_path, text)) == REGISTER_SEEN


def test_operations_that_share_a_line_are_told_by_their_index(tmp_path: Path) -> None:
    history = read(tmp_path, "[" + REGISTER.replace("\n", " ") + "]")
    assert history.place_name == "index"
    assert history.place.tolist() == [0, 1, 5, 6, 9]


@pytest.mark.parametrize("piece", [16, 64, 100, 257, 1000])
def test_it_does_not_matter_where_the_file_is_cut_into_pieces(tmp_path: Path, piece: int) -> None:
    path = tmp_path / "history.edn"
    path.write_text("; " + "x" * 300 + "\n[" + REGISTER + "]")
    history = read_pieces(path, "jepsen", keyed=False, piece=piece)
    assert seen(history) == REGISTER_SEEN
    assert history.place.tolist() == [2, 3, 7, 8, 11]


def test_a_column_is_right_also_behind_the_first_piece(tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    line = "[" + REGISTER.replace("\n", " ")
    path.write_text(line + "]]")
    for piece in (64, 1 << 20):
        with pytest.raises(UnreadableHistory, match=f"line 1, column {len(line) + 2}: no oper"):
            read_pieces(path, "jepsen", keyed=False, piece=piece)


def test_keys_of_independent(tmp_path: Path) -> None:
    text = """\
{:process 0, :type :invoke, :f :cas, :value [:a [1 2]]}
{:process 1, :type :invoke, :f :read, :value ["b" nil]}
{:process 1, :type :ok, :f :read, :value #jepsen.independent/tuple ["b" 7]}
{:process 0, :type :info, :f :cas, :value :timed-out}
{:process 2, :type :invoke, :f :read, :value [7 nil]}
{:process 2, :type :fail, :f :read, :value nil}
{:process 2, :type :invoke, :f :read, :value ["7" nil]}
"""
    history = read(tmp_path, text, keyed=True)
    assert seen(history) == [
        (0, "cas", (1, 2), None, "info", 0, None, "a"),
        (1, "read", None, 7, "ok", 1, 2, "b"),
        (2, "read", None, None, "fail", 3, 4, "7"),
        (2, "read", None, None, "info", 5, None, '"7"'),
    ]
    assert complaint(tmp_path, REGISTER, keyed=True) == (
        "history.edn, line 1, column 57: the history is keyed, but a value is no [key value]: 3;"
        " without --keyed it is one object"
    )


def test_values_are_decoded_and_equal_ones_are_one(tmp_path: Path) -> None:
    values = ["[1 2]", "[1, 2]", "(1 2)", "#{1 2}", "#{2 1}", '"a"', ":a", "7N", "#inst 7", "+7",
              "99999999999999999999", "1.5", "1/2", "2.50M", "true", "{:a 1}", "nil", "-0",
              "\\newline", '"\\n"', "9223372036854775807", "-9223372036854775808"]  # fmt: skip
    text = "".join(
        f"{{:process {i} :type :invoke :f :write :value {value}}}\n"
        for i, value in enumerate(values)
    )
    history = read(tmp_path, text)
    assert [history.argument.get(row) for row in range(len(history))] == [
        (1, 2), (1, 2), (1, 2), frozenset({1, 2}), frozenset({1, 2}), "a", "a", 7, 7, 7,
        99999999999999999999, 1.5, Fraction(1, 2), Decimal("2.50"), True, frozenset({("a", 1)}),
        None, 0, "\n", "\n", 2**63 - 1, -(2**63),
    ]  # fmt: skip
    assert len(history.argument.forms) == 10
    assert history.argument.kind.tolist().count(INTEGER) == 6
    assert history.argument.kind.tolist().count(FORM) == 15


def test_a_dequeue_of_an_empty_queue_is_an_observation(tmp_path: Path) -> None:
    text = "".join(
        f"{{:process {i} :type :invoke :f :{f} :value nil}}\n"
        f"{{:process {i} :type :fail :f :{f} :value nil :error {error}}}\n"
        for i, (f, error) in enumerate(
            [("dequeue", ":empty"), ("dequeue", '"empty"'), ("dequeue", ":refused"),
             ("read", ":empty")]
        )
    )  # fmt: skip
    kinds = [(operation[4], operation[3]) for operation in seen(read(tmp_path, text))]
    assert kinds == [("ok", None), ("ok", None), ("fail", None), ("fail", None)]


def test_a_process_may_go_on_after_an_info(tmp_path: Path) -> None:
    text = REGISTER + "{:process 0, :type :invoke, :f :read, :value nil, :time 27}\n"
    assert len(read(tmp_path, text)) == 6


@pytest.mark.parametrize("cut", range(1, len(REGISTER.splitlines()[4])))
def test_a_torn_entry_is_left_out_and_told(tmp_path: Path, cut: int) -> None:
    lines = REGISTER.splitlines(keepends=True)
    history = read(tmp_path, "".join(lines[:4]) + lines[4][:cut])
    assert history.notes == (
        "the file is cut off at line 5: it was read up to the last whole entry",
    )
    assert seen(history)[1] == (1, "read", None, None, "info", 1, None, "")


def test_a_vector_that_is_not_closed_is_torn(tmp_path: Path) -> None:
    history = read(tmp_path, "[" + REGISTER)
    assert seen(history) == REGISTER_SEEN
    assert history.notes == (
        "the file is cut off at line 11: it was read up to the last whole entry",
    )


def test_no_operations(tmp_path: Path) -> None:
    assert len(read(tmp_path, "[]")) == 0
    assert len(read(tmp_path, "{:process :nemesis, :type :info, :f :start}")) == 0


OPEN = "{:process 0, :type :invoke, :f :read}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (OPEN + OPEN, "line 2, column 1: process 0 invokes an operation while the one that it"
                      " invoked in line 1 is open"),
        ("\n" + OPEN.replace("invoke", "ok"),
         "line 2, column 1: process 0 completes an operation, but has none open"),
        (OPEN + OPEN.replace("invoke", "info") + OPEN.replace("invoke", "ok"),
         "line 3, column 1: process 0 completes an operation, but has none open"),
        (OPEN + "{:process 0, :type :ok, :f :write}",
         "line 2, column 1: process 0 completes write, but what it invoked in line 1 is something"
         " else"),
        ("{:process 0, :type :invoked, :f :read}",
         "line 1, column 20: a type is :invoke, :ok, :fail or :info, not :invoked"),
        ("{:process 0, :f :read}", "line 1, column 1: an operation without a type"),
        ("{:type :invoke, :f :read}", "line 1, column 1: an operation without a process"),
        ("{:process 0, :type :invoke}", "line 1, column 1: an operation without an f"),
        ("{:process 0, :type :invoke, :f nil}", "line 1, column 32: an f is a word, not nil"),
        ("{:process :client, :type :invoke, :f :read}",
         "line 1, column 11: a process is a number or :nemesis, not :client"),
        ("{:process 3000000000, :type :invoke, :f :read}",
         "line 1, column 11: a process is a number or :nemesis, not 3000000000"),
        ("{:process 0, :type :invoke, :f :read, :time 1.5}",
         "line 1, column 45: a time is a number of nanoseconds, not 1.5"),
        (OPEN + "{:process 0, :type :ok, :f :read, :value [1 2}}",
         "line 2, column 46: a bracket is closed by one of another kind"),
        (OPEN + "{:process 0, :type :ok, :f :read, :value}",
         "line 2, column 41: a map has a key without a value"),
        (OPEN + "42\n", "line 2, column 1: no operation stands here"),
        (OPEN + "{:process 0, :type :ok, :f \x01}", "line 2, column 28: this can't stand here"),
        (OPEN + "{:process 0, :value " + "[" * 200, "line 2, column 149: more than 128 brackets"
                                                    " within each other"),
        ("{:process 0, :type :invoke, :f :write, :value [1 \\newlin]}",
         "line 1: \\newlin is no character"),
        ("\n{:process 0, :type :invoke, :f :write, :value {:a}}",
         "line 2: a map has a key without a value"),
        ('{:process 0, :type :invoke, :f :write, :value "\\q"}',
         "line 1: \\q is no escape in a string"),
    ],
)  # fmt: skip
def test_what_is_malformed_is_named_by_its_line(tmp_path: Path, text: str, said: str) -> None:
    assert complaint(tmp_path, text) == f"history.edn, {said}"


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -5, 2**70, 1.5, float("inf"), "", 'a "b"\\\n', (), (1, (2, "x")),
     frozenset({1, (2, 3)}), Fraction(1, 3), Decimal("1.50")],
)  # fmt: skip
def test_values_survive_writing_and_reading(value: object) -> None:
    back = decode(encode(value))  # type: ignore[arg-type]
    assert exact(back) == exact(value)  # type: ignore[arg-type]


TOO_LONG = "9" * 200_000
NO_VALUES = ["", "[1", "{1}", "1 2", "\\", "#", "1x", "]", '"a', "#_ 1", ":", f"1e{'9' * 20}M"]


@pytest.mark.parametrize("text", [*NO_VALUES, TOO_LONG, f"1/{TOO_LONG}", f"{TOO_LONG}/3"])
def test_what_is_no_value(text: str) -> None:
    with pytest.raises(EdnError):
        decode(text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnreadableHistory, match="cannot read .*nowhere: No such file"):
        read_history(tmp_path / "nowhere")
