"""Messages that may have gone to a consumer that acknowledges nothing, and that never got them.

To such a consumer (no_ack) a message counts as consumed as soon as it is sent, so what is on its
way when a channel or a link ends is gone: window L5 of docs/evidence/loss-windows.md.

Source: RabbitMQ, Consumer Acknowledgements and Publisher Confirms, Acknowledgement Modes and Data
Safety: "if consumer's TCP connection or channel is closed before successful delivery, the message
sent by the server will be lost. Therefore, automatic acknowledgement mode should be considered
unsafe". A broker that has not noticed the end goes on sending: for a moment, or as long as a fault
hides it.
"""

from __future__ import annotations

import numpy as np

from shalott.checkers.consumers.case.case import Case
from shalott.checkers.consumers.case.intervals import S
from shalott.checkers.history.columns import Bools, Ints

ORDERLY = ("cancelled", "refused", "cancelled-by-server")  # nothing was on its way any more
NOTICED_NS = 2 * S  # by then a broker in peace has seen a connection end
HIDDEN_NS = 15 * S  # by then it has missed its heartbeats


def maybe_sent(case: Case, code: int, messages: Ints) -> Bools:
    """Which of a queue's messages may have been sent to nobody."""
    consumers, published = case.rows.consumers, case.rows.published
    own = np.flatnonzero((consumers.queue == code) & consumers.no_ack)
    until_ns = max((_until_ns(case, code, int(each)) for each in own), default=-1)
    return np.asarray(published.invoke_ns[messages] < until_ns)


def _until_ns(case: Case, code: int, consumer: int) -> int:
    """Until when something may have been lost on its way to this one; -1 if nothing was."""
    consumers, quiet = case.rows.consumers, case.calm.quiet
    begin_ns, end_ns = int(consumers.begin_ns[consumer]), int(consumers.end_ns[consumer])
    end_ns = min(end_ns, case.around.end_ns)
    low, high = int(quiet.first[code]), int(quiet.first[code + 1])
    begins, ends = quiet.begin[low:high], quiet.end[low:high]
    at = int(np.searchsorted(begins, end_ns, side="right")) - 1
    in_peace = at >= 0 and ends[at] >= end_ns
    if consumers.ended[consumer] not in ORDERLY:
        hidden = not in_peace or consumers.ended[consumer] in ("lost", "")
        if not hidden:
            return end_ns + NOTICED_NS
        later = int(begins[at + 1]) if at + 1 < len(begins) else case.around.end_ns
        return max(end_ns + HIDDEN_NS, end_ns if in_peace else later)
    if in_peace:  # the last trouble before that
        return int(begins[at]) if begins[at] > begin_ns else -1
    return end_ns
