"""One value that a history writes in two ways is one value to every judge: sets and maps have no
order, and a keyword is the string that JSON makes of it."""

from __future__ import annotations

import pytest

from shalott.checkers.judge import Limits, make_judge
from shalott.checkers.reading.entries import EntrySource

pytestmark = pytest.mark.unit

WAYS = (
    ("5N", "5"),
    ("[1 2]", "(1 2)"),
    (":a", '"a"'),
    ('"\\u0041"', '"A"'),
    ("#{1 2}", "#{2 1}"),
    ("{:a 1, :b 2}", "{:b 2, :a 1}"),
    ("{:a #{1 2}, :b {1 2, 3 4}}", "{:b {3 4, 1 2}, :a #{2 1}}"),
    ("[#{[1 2] {:x 1, :y #{}}} 3]", "[#{{:y #{}, :x 1} [1 2]} 3]"),
)

# By judge: what gives one of the two, and what finds the other.
GIVEN_AND_FOUND = {
    "list-append": (("txn", "[[:append 1 {}]]"), ("txn", "[[:r 1 [{}]]]")),
    "rw-register": (("txn", "[[:w 1 {}]]"), ("txn", "[[:r 1 {}]]")),
    "add-read": (("txn", "[[:add 1 {}]]"), ("txn", "[[:r 1 #{{{}}}]]")),
    "kafka": (("send", "[[:send :k [0 {}]]]"), ("poll", "[[:poll {{:k [[0 {}]]}}]]")),
    "total-queue": (("enqueue", "{}"), ("drain", "[{}]")),
    "final-set": (("add", "{}"), ("read", "#{{{}}}")),
    "replica-logs": (("append", "{}"), ("read", "[{}]")),
    "read-your-writes": (("write", "{}"), ("read", "{}")),
}


def history(judge: str, given: str, found: str) -> str:
    lines = []
    for (f, form), value in zip(GIVEN_AND_FOUND[judge], (given, found), strict=True):
        for kind in ("invoke", "ok"):
            lines.append(
                f"{{:index {len(lines)}, :type :{kind}, :process 0, :f :{f},"
                f" :value {form.format(value)}}}"
            )
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("judge", GIVEN_AND_FOUND)
@pytest.mark.parametrize("ways", WAYS, ids=" ".join)
def test_a_value_is_the_same_however_it_is_written(judge: str, ways: tuple[str, str]) -> None:
    for given, found in (ways, ways[::-1]):
        source = EntrySource.of_text(history(judge, given, found).encode())
        result = make_judge(judge).judge(source, Limits())
        assert result.valid is True, (given, found, result.anomalies, result.notes)


@pytest.mark.parametrize("judge", ["list-append", "add-read", "kafka", "total-queue", "final-set"])
@pytest.mark.parametrize("other", ["{:a 1, :b 3}", "{:a 1}", "#{:a 1 :b 2}", "[:a 1 :b 2]"])
def test_another_value_is_another(judge: str, other: str) -> None:
    source = EntrySource.of_text(history(judge, "{:b 2, :a 1}", other).encode())
    assert make_judge(judge).judge(source, Limits()).valid is False
