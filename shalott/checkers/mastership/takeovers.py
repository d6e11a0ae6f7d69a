"""How long a group waited for its next master after a fault took its master's node away.

Told, not judged: the gate of a plan is on what clients got (``availability``), and a group whose
old master goes on acknowledging behind a partition has a long takeover and no outage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from shalott.checkers.history.faults import Fault
from shalott.checkers.history.tenures import Tenure


def takeovers_ns(held: Sequence[Tenure], faults: Iterable[Fault]) -> Iterator[int]:
    """From each fault's taking hold to the first tenure of another node, while the fault lasts; of
    each group whose master's node it struck, and which got another master."""
    for fault in faults:
        struck = _struck(fault)
        for group in dict.fromkeys(tenure.group for tenure in held):
            own = [tenure for tenure in held if tenure.group == group]
            at_once = [t for t in own if t.begin_ns <= fault.effective_ns <= t.end_ns]
            masters = {tenure.node for tenure in at_once}
            if not masters or not masters <= struck:
                continue
            waited = [
                tenure.begin_ns - fault.effective_ns
                for tenure in own
                if fault.effective_ns < tenure.begin_ns <= fault.end_ns
                and tenure.node not in masters
            ]
            if waited:
                yield min(waited)


def _struck(fault: Fault) -> set[str]:
    """Nodes that it was done to, or that lost a link."""
    return {*fault.nodes, *(node for link in fault.links for node in link)}
