"""When a group of brokers is at rest: one master that all others follow, each of them in sync.

Pure functions of one round of observations (``System.observe``), so that readiness, settling and
the report's "why not" say the same. A broker's claim has ``role`` master, slave or none, the
``master`` that it knows, and, if it is the master, who is ``synchronised``. Where claims tell how
far each log goes (``end_offset``, and ``readable_offset``, up to which readers are served), both
must everywhere, at the master too, have come to where the master's log ended a few looks before: so
a group can be at rest under load, also one that makes messages readable with a delay, and has
nothing to catch up with when the load is over. Of a node only that is asked which goes with the
``services`` that it hosts.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence

from shalott.cluster.system import Claim, Observation
from shalott.cluster.systems.settling import Observe, observe_all

log = logging.getLogger("shalott.cluster.systems")

POLL_S, LAST_POLL_S = 0.25, 1.0
ROUNDS = 2  # in a row, and alike: an election in between would show
LOOKS_BEHIND = 3  # at most 3 s: what is appended is flushed, committed and dispatched by then
OFFSETS = ("end_offset", "readable_offset")


def why_unsettled(
    seen: Mapping[str, Observation | None], wanted: Mapping[str, int] | None = None
) -> str:
    """What is still missing, in one phrase; "" if the group is at rest.

    ``wanted``: how far all logs must go at least; by default as far as the master's goes now.
    """
    for node, found in sorted(seen.items()):
        if found is None:
            return f"{node} can't be asked"
        if found.get("status", "running") != "running":
            return f"{node} is {found['status']}"
        if not found["claims"] and _hosts(found, "broker"):
            return f"{node} has no broker yet"
    claims = {node: f["claims"][0] for node, f in sorted(seen.items()) if f and f["claims"]}
    masters = [node for node, claim in claims.items() if claim["role"] == "master"]
    if len(masters) != 1:
        return f"{' and '.join(masters) or 'no node'} {'are' if masters[1:] else 'is'} the master"
    if wanted is None:
        wanted = _all_of(claims[masters[0]])
    return _why_not_followed(claims, masters[0], wanted) or _why_not_known(seen, list(claims))


def _hosts(found: Observation, service: str) -> bool:
    return service in found["services"]


def _all_of(claim: Claim) -> dict[str, int]:
    """Everything that a master has must be there, and be readable."""
    end, readable = (claim.get(offset) for offset in OFFSETS)
    if end is not None:
        return dict.fromkeys(OFFSETS, int(end))
    return {} if readable is None else {OFFSETS[1]: int(readable)}


def _offsets(claim: Claim) -> dict[str, int]:
    return {offset: int(claim[offset]) for offset in OFFSETS if claim.get(offset) is not None}


def _why_not_followed(claims: Mapping[str, Claim], master: str, wanted: Mapping[str, int]) -> str:
    ruling = claims[master]
    if ruling.get("state") != "running":
        return f"the master {master} is {ruling.get('state')}"
    for node, claim in claims.items():
        own = _offsets(claim)
        for offset, least in wanted.items():
            if own.get(offset, 0) < least:
                what = f"{offset.replace('_', ' ')} is {own.get(offset, 0)}"
                return f"{node}'s {what}, and the master's log ended at {least}"
        if node == master:
            continue
        if claim["role"] != "slave" or not _is_told(claim, "master", master):
            return f"{node} is {claim['role']} and follows {claim['master'] or 'no node'}"
        if ruling.get("epoch") and not _is_told(claim, "epoch", ruling["epoch"]):
            return f"{node} follows in epoch {claim.get('epoch')}, not {ruling.get('epoch')}"
        if "synchronised" not in _unknown(ruling) and node not in ruling["synchronised"]:
            return f"{node} is not synchronised"
    return ""


def _unknown(claim: Claim) -> Sequence[str]:
    """What its broker can't be asked, as an original's. Nothing is demanded of that."""
    told: Sequence[str] = claim.get("unknown") or ()
    return told


def _is_told(claim: Claim, field: str, wanted: object) -> bool:
    return field in _unknown(claim) or claim.get(field) == wanted


def _why_not_known(seen: Mapping[str, Observation | None], brokers: Sequence[str]) -> str:
    """Whether each name server knows all brokers, and each controller its leader."""
    for node, found in sorted(seen.items()):
        assert found is not None
        registered = found.get("registered")  # of a node with a name server
        absent = [] if registered is None else [name for name in brokers if name not in registered]
        if absent:
            return f"the name server of {node} does not know {', '.join(absent)}"
        controller = found.get("controller")
        if controller is not None and not controller.get("leader"):
            return f"the controller of {node} knows no leader"
    return ""


async def await_settled(observe: Observe, nodes: Sequence[str], timeout_ms: int) -> str:
    """ "" when the group has come to rest in time, else what it was waiting for."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_ms / 1000
    rounds: list[object] = []
    reason, poll_s = "nothing was observed", POLL_S
    ends: deque[dict[str, int]] = deque(maxlen=LOOKS_BEHIND)  # the master's, look by look
    while loop.time() < deadline_s:
        seen = await observe_all(observe, nodes)
        reason = why_unsettled(seen, ends[0] if ends else None)
        end = _masters_offsets(seen)
        if end is None:
            ends.clear()
        else:
            ends.append(end)
        rounds = [*rounds, _roles(seen)] if not reason else []
        if len(rounds) >= ROUNDS and rounds[-1] == rounds[-2]:
            return ""
        await asyncio.sleep(poll_s)
        poll_s = min(1.1 * poll_s, LAST_POLL_S)
    return reason or "it changed from look to look"


def _masters_offsets(seen: Mapping[str, Observation | None]) -> dict[str, int] | None:
    """Of the master of the highest epoch; None if there is none."""
    claims = [claim for found in seen.values() if found for claim in found["claims"]]
    masters = [claim for claim in claims if claim["role"] == "master"]
    if not masters:
        return None
    return _all_of(max(masters, key=lambda claim: int(claim.get("epoch") or 0)))


def _roles(seen: Mapping[str, Observation | None]) -> object:
    return {
        node: [
            (claim["group"], claim["role"], claim["master"], claim.get("epoch"))
            for claim in found["claims"]
        ]
        for node, found in seen.items()
        if found is not None
    }
