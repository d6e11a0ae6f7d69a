"""The cases of Elle's own tests (elle.list-append-test, elle.rw-register-test), as facts: short
histories, what was asked for, and what Elle finds in them.

A line is a transaction: ``ax1`` appends 1 to x, ``wx1`` writes it, ``rx12`` read [1 2] of a list
or 12 of a register, ``rx`` [] of a list, ``rx_`` nil. Before it may stand a process, and what came
of it: ``1 fail ax1``. By default all are of process 0, ok, and have no invocation; with ``pairs``
each has one, and is over before the next begins. ``order``: the places of invocations and
completions, where they overlap: ``1 2 2' 1'``.

``differs``: why ours is not what Elle says, which then stands in ``elle``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ElleCase:
    name: str
    history: str
    options: str  # of the judge
    valid: bool | Literal["unknown"]
    types: str = ""  # anomalies, in any order
    violated: str = ""  # the weakest models
    judge: str = "list-append"
    pairs: bool = False
    order: str = ""
    elle: str = ""
    differs: str = ""

    def edn(self) -> str:
        return "".join(_lines(self))


_MOP = re.compile(r"([arw])([xyztu])(\d*|_)")


def _lines(case: ElleCase) -> Iterator[str]:
    transactions = [each.split() for each in case.history.split("/")]
    if case.order:
        steps = [(int(step.strip("'")) - 1, step.endswith("'")) for step in case.order.split()]
    elif case.pairs:
        steps = [(at, end) for at in range(len(transactions)) for end in (False, True)]
    else:
        steps = [(at, True) for at in range(len(transactions))]
    for index, (at, is_end) in enumerate(steps):
        *told, mops = transactions[at]
        process = told[0] if told else "0"
        kind = (told[1] if len(told) > 1 else "ok") if is_end else "invoke"
        shown = " ".join(_mop(case.judge, is_end, *parts) for parts in _MOP.findall(mops))
        yield f"{{:index {index}, :type :{kind}, :process {process}, :f :txn, :value [{shown}]}}\n"


def _mop(judge: str, is_end: bool, f: str, key: str, value: str) -> str:
    if f == "r" and not is_end:
        return f"[:r :{key} nil]"
    if f == "r" and judge == "list-append":
        return f"[:r :{key} [{' '.join(value)}]]"
    name = {"a": "append", "r": "r", "w": "w"}[f]
    return f"[:{name} :{key} {'nil' if value in ('_', '') else value}]"


_PARALLEL = (
    "a cycle with one rw also rules out parallel snapshot isolation (Cerone & Gotsman 2018), of"
    " which Elle's table does not say so"
)
_PROCESS = (
    "the order of processes and of time is always looked at: what they violate is told even where"
    " other models were asked for"
)
_REASONED = (
    "the cycle with an edge of time is there, too; Elle finds it, explains that edge by the rw that"
    " goes the same way, sees that the name no longer fits, and drops it"
)
_FIRST_REASON = (
    "the same cycle, whose edge is a ww and a wr; Elle names it by the wr, which it explains first."
    " The order of the process is looked at besides that of time"
)


def _of(levels: str) -> str:
    return f"consistency={levels}"


def _only(anomalies: str) -> str:
    return f"consistency=,anomalies={anomalies}"


CASES: tuple[ElleCase, ...] = (
    # --- list-append: checker-test -------------------------------------------------------------
    *(
        ElleCase(
            f"G0 asked {asked}",
            "ax1ay1/ax2ay2/rx12ry21",
            _only(asked),
            valid,
            types,
            "read-uncommitted",
        )
        for asked, valid, types in (("G0", False, "G0"), ("G1", False, "G0"), ("G2", True, ""))
    ),
    ElleCase(
        "G1a, read-uncommitted",
        "0 fail ax1/rx1",
        _of("read-uncommitted"),
        "unknown",
        "",
        "read-committed",
    ),
    ElleCase(
        "G1a, read-committed",
        "0 fail ax1/rx1",
        _of("read-committed"),
        False,
        "G1a",
        "read-committed",
    ),
    ElleCase("G1a, G2", "0 fail ax1/rx1", _only("G2"), "unknown", "", "read-committed"),
    ElleCase(
        "G1a, repeatable-read",
        "0 fail ax1/rx1",
        _of("repeatable-read"),
        False,
        "G1a",
        "read-committed",
    ),
    ElleCase("G1b, G0", "ax1ax2/rx1", _only("G0"), True, "", "read-committed", pairs=True),
    ElleCase("G1b, G1", "ax1ax2/rx1", _only("G1"), False, "G1b", "read-committed", pairs=True),
    ElleCase(
        "G1b, G2", "ax1ax2/rx1", _only("G2"), False, "G-single-item", "read-committed", pairs=True
    ),
    ElleCase(
        "G1b, strict-serializable",
        "ax1ax2/rx1",
        _of("strict-serializable"),
        False,
        "G-single-item G1b",
        "read-committed",
        pairs=True,
    ),
    *(
        ElleCase(
            f"G1c, {asked}", "ax1ry1/ax2ay1/rx12ry1", _only(asked), valid, types, "read-committed"
        )
        for asked, valid, types in (("G0", True, ""), ("G1", False, "G1c"), ("G2", True, ""))
    ),
    *(
        ElleCase(
            f"G-single, {asked}",
            "ax1ay1/ax2ry/rx12",
            _only(asked),
            valid,
            types,
            "consistent-view parallel-snapshot-isolation repeatable-read",
            elle="consistent-view repeatable-read",
            differs=_PARALLEL,
        )
        for asked, valid, types in (
            ("G0", True, ""),
            ("G1", True, ""),
            ("G-single", False, "G-single-item"),
            ("G2", False, "G-single-item"),
        )
    ),
    *(
        ElleCase(
            f"G2, {options}",
            "ax1ry/ay1rx",
            options,
            valid,
            types,
            "repeatable-read strong-session-snapshot-isolation",
            elle="repeatable-read",
            differs=_PROCESS,
        )
        for options, valid, types in (
            (_only("G0"), True, ""),
            (_only("G1"), True, ""),
            (_of("read-committed"), True, ""),
            (_only("G2"), False, "G2-item"),
            (_of("serializable"), False, "G2-item"),
            (_of("repeatable-read"), False, "G2-item"),
        )
    ),
    *(
        ElleCase(
            f"strong SI, {options}",
            "0 ok ax1/1 ok ax2/2 ok rx1/3 ok rx12",
            options,
            valid,
            types,
            "strong-snapshot-isolation",
            pairs=True,
        )
        for options, valid, types in (
            (_only("G2"), True, ""),
            (_of("serializable"), True, ""),
            (_of("strict-serializable"), False, "G-single-item-realtime"),
        )
    ),
    *(
        ElleCase(
            f"strong session SI, {options}",
            "0 ok ax1/1 ok ax2/1 ok rx1/2 ok rx12",
            options,
            valid,
            types,
            "strong-session-snapshot-isolation",
            pairs=True,
        )
        for options, valid, types in (
            (_of("serializable"), True, ""),
            (_of("strong-session-snapshot-isolation"), False, "G-single-item-process"),
        )
    ),
    *(
        ElleCase(
            f"G-nonadjacent-process, {options}",
            "0 ok rxrz1/1 ok ax1/1 ok rz/2 ok az1",
            options,
            valid,
            types,
            "strong-read-committed strong-session-snapshot-isolation",
            elle="strong-session-snapshot-isolation",
            differs=_PROCESS,
            pairs=True,
        )
        for options, valid, types in (
            (_of("serializable"), True, ""),
            (_of("strong-session-snapshot-isolation"), False, "G-nonadjacent-item-process"),
        )
    ),
    ElleCase(
        "contradictory read orders",
        "ax1ry1/ax2/ax3ay1/rx13/rx123",
        _only("G1"),
        False,
        "G1c incompatible-order",
        "read-committed",
    ),
    ElleCase("dirty update: none", "0 fail ax1", _only("dirty-update"), "unknown"),
    ElleCase(
        "dirty update: direct",
        "0 fail ax1/1 ok ax2/2 ok rx12",
        _only("dirty-update"),
        False,
        "dirty-update",
        "read-committed",
    ),
    ElleCase(
        "dirty update: indirect",
        "0 fail ax1/1 info ax2/2 ok ax3/3 ok rx123",
        _only("dirty-update"),
        False,
        "dirty-update",
        "read-committed",
    ),
    ElleCase(
        "duplicated elements",
        "ax1ry1/ax2ay1/rx121",
        _of("read-committed"),
        False,
        "G1c duplicate-elements",
        "read-uncommitted",
    ),
    ElleCase(
        "internal", "ax1ax2ax4/ax3rx1234", _only("internal"), False, "internal", "read-uncommitted"
    ),
    # --- list-append: the other tests ----------------------------------------------------------
    ElleCase(
        "unobserved write",
        "0 ok ax1ay1/1 ok ax2ay2/2 ok ax3ay3/3 ok rx12/4 ok ry2",
        _of("serializable"),
        False,
        "G-single-item G0",
        "read-uncommitted",
        order="1 2 3 4 5 1' 2' 3' 4' 5'",
    ),
    ElleCase(
        "repeatable read, read-committed",
        "rxay1/ryax1",
        _of("read-committed"),
        True,
        "",
        "repeatable-read strong-session-snapshot-isolation",
        elle="repeatable-read",
        differs=_PROCESS,
    ),
    ElleCase(
        "repeatable read",
        "rxay1/ryax1",
        _of("repeatable-read"),
        False,
        "G2-item",
        "repeatable-read strong-session-snapshot-isolation",
        elle="repeatable-read",
        differs=_PROCESS,
    ),
    ElleCase(
        "G-nonadjacent",
        "ax1/rx1ry/ay1/ry1rx",
        "",
        False,
        "G-nonadjacent-item G-single-item-process G-single-item-realtime",
        "repeatable-read snapshot-isolation",
        pairs=True,
        elle="G-nonadjacent-item",
        differs=_REASONED,
    ),
    ElleCase(
        "G-nonadjacent: adjacent ones are none",
        "rx5ay1/ryaz2/rzat3/rt3au4/ruax5",
        _of("snapshot-isolation"),
        True,
        "",
        "strong-session-read-committed",
        pairs=True,
        elle="repeatable-read",
        differs=f"{_PROCESS}; here each transaction is called when the one before is over, so that"
        " there are shorter cycles with an edge of the process",
    ),
    ElleCase(
        "lost update",
        "ax0/rx0ax1/rx0ax2",
        "",
        False,
        "G2-item G-single-item-process G-single-item-realtime lost-update",
        "cursor-stability update-atomic",
        pairs=True,
        elle="G2-item lost-update",
        differs=_REASONED,
    ),
    ElleCase("lost update: one transaction, two writes", "rxax1ax2/rx12", "", True, pairs=True),
    ElleCase(
        "wr and process",
        "1 ok rx1ay1/2 ok ry1/2 ok ax1",
        _of("strong-session-snapshot-isolation"),
        False,
        "G1c-process",
        "strong-session-read-committed",
        pairs=True,
    ),
    ElleCase(
        "G-single-item and repeatable read",
        "ax1ay1/rx1ry",
        _of("repeatable-read"),
        False,
        "G-single-item",
        "consistent-view parallel-snapshot-isolation repeatable-read",
        pairs=True,
        elle="consistent-view repeatable-read",
        differs=_PARALLEL,
    ),
    ElleCase(
        "G-nonadjacent-item and repeatable read",
        "ax1at1/rx1ry/ay1az2/rz2rt",
        _of("repeatable-read"),
        False,
        "G-nonadjacent-item",
        "repeatable-read snapshot-isolation",
        pairs=True,
    ),
    ElleCase(
        "future read",
        "rx1ax1",
        _of("read-committed"),
        False,
        "future-read",
        "read-committed",
        pairs=True,
    ),
    # --- rw-register ---------------------------------------------------------------------------
    ElleCase(
        "a read of what none wrote",
        "wx1/rx2",
        _of("strict-serializable") + ",linearizable_keys=true",
        True,
        judge="rw-register",
        pairs=True,
    ),
    ElleCase(
        "and then of what was written",
        "wx1/rx2/rx1",
        _of("strict-serializable") + ",linearizable_keys=true",
        False,
        "cyclic-versions",
        "read-uncommitted",
        judge="rw-register",
        pairs=True,
    ),
    ElleCase(
        "G0: nothing known of versions",
        "0 ok wx1wy2/1 ok wx2wy1",
        _only("G0"),
        "unknown",
        judge="rw-register",
    ),
    ElleCase(
        "G0: sequential keys",
        "0 ok wx1wy2/1 ok wx2wy1/0 ok rx2/1 ok ry2",
        _only("G0") + ",sequential_keys=true",
        False,
        "G0",
        "read-uncommitted",
        judge="rw-register",
        pairs=True,
    ),
    ElleCase(
        "G1a", "rx1/0 fail wx1", _only("G1"), False, "G1a", "read-committed", judge="rw-register"
    ),
    ElleCase(
        "G1b, G0", "wx1wx2/rx1", _only("G0"), "unknown", "", "read-committed", judge="rw-register"
    ),
    ElleCase(
        "G1b, G1", "wx1wx2/rx1", _only("G1"), False, "G1b", "read-committed", judge="rw-register"
    ),
    ElleCase(
        "G1b, repeatable-read",
        "wx1wx2/rx1",
        _of("repeatable-read"),
        False,
        "G1b",
        "read-committed",
        judge="rw-register",
    ),
    ElleCase(
        "no order of transactions", "rx_wy2/wx3wy4", _of("serializable"), True, judge="rw-register"
    ),
    ElleCase(
        "no order of transactions, of four",
        "wx1wy2wz3/rx1wy5/rz3wx4/wz7wy8",
        _of("serializable"),
        True,
        judge="rw-register",
    ),
    *(
        ElleCase(
            f"G1c, {options}",
            "wx1ry1/wy1rx1",
            options,
            valid,
            types,
            "read-committed",
            judge="rw-register",
        )
        for options, valid, types in (
            (_only("G0"), True, ""),
            (_of("read-uncommitted"), True, ""),
            (_only("G1"), False, "G1c"),
            (_of("read-committed"), False, "G1c"),
            (_only("G2"), True, ""),
            (_of("serializable"), False, "G1c"),
        )
    ),
    ElleCase(
        "G2-item, read-committed",
        "0 ok rx1ry1/1 ok rx1wy2/2 ok ry1wx2",
        _of("read-committed") + ",linearizable_keys=true",
        True,
        "",
        "repeatable-read",
        judge="rw-register",
        order="1 1' 2 3 3' 2'",
    ),
    ElleCase(
        "G2-item",
        "0 ok rx1ry1/1 ok rx1wy2/2 ok ry1wx2",
        _only("G2") + ",linearizable_keys=true",
        False,
        "G2-item",
        "repeatable-read",
        judge="rw-register",
        order="1 1' 2 3 3' 2'",
    ),
    ElleCase(
        "internal",
        "rx1rx2",
        _only("internal"),
        False,
        "internal",
        "read-committed",
        judge="rw-register",
        elle="read-atomic",
        differs="1 and 2 were read of x, and no transaction wrote either: one of them is garbage",
    ),
    ElleCase(
        "initial state",
        "0 ok rx_ry1/1 ok wy1wx2",
        _of("serializable"),
        False,
        "G-single-item",
        "consistent-view parallel-snapshot-isolation repeatable-read",
        judge="rw-register",
        order="1 2 2' 1'",
        elle="consistent-view repeatable-read",
        differs=_PARALLEL,
    ),
    ElleCase(
        "wfr: not assumed", "ry1wx1wy2/rx1ry1", _of("serializable"), True, judge="rw-register"
    ),
    ElleCase(
        "wfr",
        "ry1wx1wy2/rx1ry1",
        _of("serializable") + ",wfr_keys=true",
        False,
        "G-single-item",
        "consistent-view parallel-snapshot-isolation repeatable-read",
        judge="rw-register",
        elle="consistent-view repeatable-read",
        differs=_PARALLEL,
    ),
    ElleCase(
        "cyclic version order",
        "wx1/wx2/rx1",
        "sequential_keys=true",
        False,
        "cyclic-versions",
        "read-uncommitted",
        judge="rw-register",
        pairs=True,
    ),
    ElleCase(
        "lost update",
        "0 ok rx0wx1/1 ok rx0wx2",
        "",
        False,
        "lost-update",
        "cursor-stability update-atomic",
        judge="rw-register",
        pairs=True,
    ),
    ElleCase(
        "two circles of versions",
        "rx1/rx_/rx4wx3/wx4",
        _of("strong-serializable") + ",wfr_keys=true,linearizable_keys=true",
        False,
        "G0-process G0-realtime cyclic-versions garbage-read",
        "read-uncommitted",
        judge="rw-register",
        pairs=True,
        elle="G1c-realtime cyclic-versions",
        differs=f"{_FIRST_REASON}; and 1 was read of x, where nil was, too, and none wrote it",
    ),
)
