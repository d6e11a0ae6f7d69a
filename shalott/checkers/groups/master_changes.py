"""When nothing may be concluded from what a broker kept in its memory: masters that came and went.

Locks live in a master's memory; offsets are written behind, and copied to slaves now and then. So
a judge of either asks whether one master ruled all the time, and if not, how old the copy may
be that its successor went by. A *turn* is a stretch in which not exactly one node was master, by
the nodes' own events. It reaches back as far as a copy may be old: offsets_follow_ms, or what a
restart loses of what is written behind; and since no node copies from one out of reach, a fault
or another turn in that time makes the copy as old as itself.

Where nodes write no events (an original's), every fault is a turn, and a while after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shalott.checkers.groups.group_rules import GroupRules
from shalott.checkers.history.columns import NEVER, Bools, Ints
from shalott.checkers.history.faults import Fault, Surroundings
from shalott.checkers.history.tenures import NodeEvent, Tenure, event_tenures

MS = 1_000_000
SLACK_NS = 250 * MS  # what an event's time may be apart from the harness's, with time to act
WRITTEN_BEHIND_MS = 5_000  # flushConsumerOffsetInterval of the brokers
COPY_SLACK_NS = 2_000 * MS  # to ask, to answer and to write, on a loaded machine
SETTLE_NS = 30_000 * MS  # after a fault, where no node says who is master

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Turns:
    """Spans in ns, merged, in order of time. ``reach_ns``: how far each may set offsets back.

    ``troubles``: when anything was wrong with the cluster: its faults, and the turns.
    """

    begin_ns: Ints
    end_ns: Ints
    reach_ns: Ints
    troubles: tuple[Span, ...]
    clocks: tuple[Span, ...]  # when a clock of a node was wrong

    def disturbed(self, begin_ns: Ints, end_ns: Ints) -> Bools:
        """By pair: whether a turn touches the time between."""
        return _touched(self.begin_ns, self.end_ns, begin_ns, end_ns)

    def troubled(self, begin_ns: Ints, end_ns: Ints) -> Bools:
        """By pair: whether anything was wrong at any time between."""
        return _touched(*_columns(self.troubles), begin_ns, end_ns)

    def wrong_clocks(self, begin_ns: Ints, end_ns: Ints) -> Bools:
        """By pair: whether a node's clock was wrong at any time between."""
        return _touched(*_columns(self.clocks), begin_ns, end_ns)


def read_turns(events: Sequence[NodeEvent], around: Surroundings, rules: GroupRules) -> Turns:
    """By the nodes' events, or by the faults alone."""
    tenures = event_tenures(events, around)
    faults = around.injected
    clocks = _merged([_span(fault, SLACK_NS) for fault in faults if "clock" in fault.kind])
    if tenures:
        spans = _merged([*_not_one(tenures), *clocks])
    else:
        spans = _merged([_span(fault, SETTLE_NS) for fault in faults])
    troubles = _merged([*(_span(fault, COPY_SLACK_NS) for fault in faults), *spans])
    reach = [_reach_ns(span, troubles, rules) for span in spans]
    begin, end = _columns(spans)
    return Turns(begin, end, np.array(reach, np.int64), tuple(troubles), tuple(clocks))


def _span(fault: Fault, after_ns: int) -> Span:
    return fault.invoke_ns - SLACK_NS, fault.end_ns + after_ns


def _not_one(tenures: Sequence[Tenure]) -> list[Span]:
    """When there was no master, or more than one, with slack at either end.

    Before the first master was there none could be served, and none is after the last one's
    end, which may just be his last sign of life. A handover is a turn even if the one tenure ends
    at the very moment at which the next begins.
    """
    steps = sorted(
        [(t.begin_ns, 1) for t in tenures] + [(t.end_ns, -1) for t in tenures],
        key=lambda step: (step[0], step[1]),
    )
    spans, masters, since_ns = list[Span](), 0, 0
    for at_ns, step in steps[:-1]:
        spans.append(((since_ns if masters != 1 else at_ns) - SLACK_NS, at_ns + SLACK_NS))
        masters, since_ns = masters + step, at_ns
    return spans


def _reach_ns(span: Span, troubles: Sequence[Span], rules: GroupRules) -> int:
    """What was committed before is in every copy that may count after this turn."""
    if not rules.keeps_acknowledged:
        return -1  # a log that is cut takes the offsets behind its end along
    age_ns = max(rules.offsets_follow_ms, WRITTEN_BEHIND_MS) * MS + COPY_SLACK_NS
    reach_ns = span[0] - age_ns
    for begin_ns, end_ns in reversed(troubles):
        if begin_ns <= span[0] and end_ns >= reach_ns:
            reach_ns = min(reach_ns, begin_ns - age_ns)
    return reach_ns


def _merged(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for begin_ns, end_ns in sorted(spans):
        if merged and begin_ns <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end_ns))
        else:
            merged.append((begin_ns, end_ns))
    return merged


def _columns(spans: Sequence[Span]) -> tuple[Ints, Ints]:
    begin = np.array([span[0] for span in spans], dtype=np.int64)
    return begin, np.array([span[1] for span in spans], dtype=np.int64)


def _touched(spans_begin: Ints, spans_end: Ints, begin_ns: Ints, end_ns: Ints) -> Bools:
    """Spans are apart from each other and sorted."""
    if not len(spans_begin):
        return np.zeros(len(begin_ns), dtype=np.bool_)
    at = np.searchsorted(spans_end, begin_ns, side="left")
    begins = np.append(spans_begin, NEVER)
    return np.asarray((at < len(spans_begin)) & (begins[at] <= end_ns))
