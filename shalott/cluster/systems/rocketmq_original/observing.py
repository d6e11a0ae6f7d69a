"""What a node of the original believes, out of what its services answered, as a claim.

Every function is pure: answers in, a view out. The fields are those of our own brokers' claims
(docs/reference/output-files.md); what an answer does not tell is None, which is unknown, and never
guessed:

- a slave's epoch: its list of epochs grows only when data of the new one arrives;
- whom a slave follows, and who is synchronised, in releases before 5 without DLedger;
- how far a log is flushed, unless the little that is not flushed is told to the byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shalott.cluster.systems.rocketmq_original.config import GROUP

Answer = Mapping[str, Any]
NameOf = Callable[[str], str]  # an address, of whichever port, to its node; "" if it is none's
_BYTES = re.compile(r"^(-?\d+) B$")


def role_of(properties: Mapping[str, str]) -> str:
    """By GET_BROKER_CONFIG: brokerId and brokerRole change with the role.

    Who has none yet has no id, or, with DLedger, the role of a default, which its leaders never
    have.
    """
    broker_id, role = properties.get("brokerId", ""), properties.get("brokerRole", "")
    if _hides_id(properties):
        return "none" if role == "ASYNC_MASTER" else "master" if role != "SLAVE" else "slave"
    raft = properties.get("enableDLegerCommitLog", properties.get("enableDLedgerCommitLog"))
    if broker_id in ("", "-1") or (raft == "true" and role == "ASYNC_MASTER"):
        return "none"
    return "master" if broker_id == "0" and role != "SLAVE" else "slave"


def _hides_id(properties: Mapping[str, str]) -> bool:
    """5.0.0 under controllers answers with the id of its file, -1, whatever it is by now. Its role
    is SYNC_MASTER or SLAVE once it has one."""
    is_elected = properties.get("enableControllerMode") == "true"
    return is_elected and properties.get("brokerId") == "-1"


def claim_of(
    node: str,
    properties: Mapping[str, str],
    runtime: Mapping[str, str],
    ha: Answer | None,
    epochs: Answer | None,
    raft: Answer | None,
    name_of: NameOf,
    member_names: Mapping[str, str],
) -> dict[str, Any]:
    """``ha``, ``epochs`` and ``raft`` are None where there is nobody to answer them.
    ``member_names``: nodes by their ids in the brokers' Raft group."""
    role = role_of(properties)
    followed = (
        _followed(ha, name_of) if raft is None else member_names.get(str(raft.get("leaderId")))
    )
    claim = {
        "group": properties.get("brokerName", GROUP),
        "role": role,
        "epoch": _term(raft) if raft is not None else _epoch(role, epochs),
        "master": node if role == "master" else followed,
        "mirrors": _connected(ha, name_of, in_sync=False),
        "synchronised": _connected(ha, name_of, in_sync=True) if role == "master" else [],
        "state": "running" if role == "master" else role,
        "broker_id": None if _hides_id(properties) else _number(properties.get("brokerId")),
        "log_epochs": _epoch_list(epochs),
        **_offsets(runtime, commits=raft is not None),
        **_ha_offsets(ha),
    }
    untold = [name for name in ("epoch", "master", "synchronised") if claim[name] is None]
    # Whom a slave with a list of connections follows is told; that it follows nobody is told, too.
    if ha is not None and "master" in untold:
        untold.remove("master")
    return {**claim, "unknown": untold}


def _offsets(runtime: Mapping[str, str], *, commits: bool) -> dict[str, int | None]:
    """A member of DLedger tells how far it knows its log to be committed, not where that ends."""
    end = _number(runtime.get("commitLogMaxOffset"))
    behind = _number(runtime.get("dispatchBehindBytes"))
    unflushed = _BYTES.match(runtime.get("remainHowManyDataToFlush", ""))
    return {
        "end_offset": None if commits else end,
        "committed_offset": end if commits else None,
        "min_offset": _number(runtime.get("commitLogMinOffset")),
        "flushed_offset": None
        if end is None or unflushed is None or commits
        else end - int(unflushed[1]),
        "readable_offset": None if end is None or behind is None else end - behind,
    }


def _ha_offsets(ha: Answer | None) -> dict[str, Any]:
    """How far each slave has acknowledged, as the master knows it."""
    connections = (ha or {}).get("haConnectionInfo") or ()
    if not (ha or {}).get("master"):
        return {}
    return {"acknowledged": {str(c.get("addr")): c.get("slaveAckOffset") for c in connections}}


def _followed(ha: Answer | None, name_of: NameOf) -> str | None:
    client = (ha or {}).get("haClientRuntimeInfo") or {}
    return name_of(str(client.get("masterAddr") or "")) or None


def _connected(ha: Answer | None, name_of: NameOf, *, in_sync: bool) -> list[str] | None:
    """None: nobody says. A connection's address is the slave's."""
    if ha is None:
        return None
    connections = ha.get("haConnectionInfo") or ()
    found = [c for c in connections if c.get("inSync") or not in_sync]
    names = [name_of(str(c.get("addr") or "").lstrip("/")) for c in found]
    return sorted(dict.fromkeys(name for name in names if name))


def add_slaves(claim: dict[str, Any], connected: Sequence[str]) -> None:
    """What else tells of a master's slaves; who is connected is told to be in sync by none, and
    is taken to be by the master until it is 256 MB behind (haSlaveFallbehindMax)."""
    claim["mirrors"] = claim["synchronised"] = sorted(name for name in connected if name)
    claim["unknown"] = [name for name in claim["unknown"] if name != "synchronised"]


def term_of(text: bytes) -> int | None:
    """DLedger's file ``currterm``: lines of "currTerm=3" and the like; None if it is none."""
    found = re.search(rb"^currTerm=(-?\d+)\s*$", text, re.MULTILINE)
    return None if found is None else int(found[1])


def _term(raft: Answer) -> int | None:
    """0 before the first election, as everywhere; DLedger begins with -1."""
    term = raft["term"]
    return None if term is None else max(0, int(term))


def _epoch(role: str, epochs: Answer | None) -> int | None:
    """Of a master the last one of its log, which it writes down when it begins."""
    listed = _epoch_list(epochs)
    return listed[-1][0] if role == "master" and listed else None


def _epoch_list(epochs: Answer | None) -> list[list[int]] | None:
    if epochs is None:
        return None
    found = epochs.get("epochList") or ()
    return [[int(one.get("epoch", 0)), int(one.get("startOffset", 0))] for one in found]


def _number(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


# -- name servers and controllers ------------------------------------------------------------------


def registered(cluster_info: Answer, name_of: NameOf) -> dict[str, Any]:
    """GET_BROKER_CLUSTER_INFO: whom a name server tells clients of, and who is the master there."""
    group = (cluster_info.get("brokerAddrTable") or {}).get(GROUP) or {}
    by_id = group.get("brokerAddrs") or {}
    names = {str(number): name_of(str(address)) for number, address in by_id.items()}
    return {
        "registered": sorted(name for name in names.values() if name),
        "name_server": {"by_id": names, "master": names.get("0", "")},
    }


def controller_of(
    metadata: Mapping[str, str], raft: Answer | None, sets: Answer | None, name_of: NameOf
) -> dict[str, Any]:
    """``metadata``: the header that answers 1005. ``sets``: the body that answers 1006, which the
    leader alone has."""
    leads = metadata.get("isLeader") == "true"
    leader = name_of(metadata.get("controllerLeaderAddress") or "")
    view: dict[str, Any] = {
        "group": metadata.get("group", ""),
        "role": "leader" if leads else "follower",
        "epoch": None if raft is None else _term(raft),
        "leader": leader,
    }
    if sets is None:
        return view
    table = sets.get("replicasInfoTable") or {}
    groups = {name: _set_of(info, name_of) for name, info in table.items()}
    return {**view, "groups": groups}


def _set_of(info: Answer, name_of: NameOf) -> dict[str, Any]:
    inside = _names(info.get("inSyncReplicas") or (), name_of)
    return {
        "master": name_of(str(info.get("masterAddress") or "")),
        "master_id": info.get("masterBrokerId"),
        "master_epoch": info.get("masterEpoch"),
        "set": inside,
        "set_epoch": info.get("syncStateSetEpoch"),
        "ids": {
            name_of(str(one.get("brokerAddress") or "")): one.get("brokerId")
            for one in [*(info.get("inSyncReplicas") or ()), *(info.get("notInSyncReplicas") or ())]
        },
        "outside": _names(info.get("notInSyncReplicas") or (), name_of),
        "alive": sorted(
            name_of(str(one.get("brokerAddress") or ""))
            for one in [*(info.get("inSyncReplicas") or ()), *(info.get("notInSyncReplicas") or ())]
            if one.get("alive")
        ),
    }


def _names(replicas: Sequence[Answer], name_of: NameOf) -> list[str]:
    return sorted(name_of(str(one.get("brokerAddress") or "")) for one in replicas)
