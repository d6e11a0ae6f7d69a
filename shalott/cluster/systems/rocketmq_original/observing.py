"""What a node of the original believes, out of what its services answered, as a claim.

``Views`` asks the services of one node and puts their answers together: a service that does not
answer leaves its part unknown; if none answers, the node can't be asked. The functions are pure:
answers in, a view out. The fields are those of our own brokers' claims
(docs/reference/output-files.md); what an answer does not tell is None, which is unknown, and never
guessed:

- a slave's epoch: its list of epochs grows only when data of the new one arrives;
- whom a slave follows, and who is synchronised, in releases before 5 without DLedger;
- how far a log is flushed, unless the little that is not flushed is told to the byte.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from shalott.broker.rocket.remoting.command import RequestCode
from shalott.cluster.cluster import Cluster
from shalott.cluster.parts import ReadsDataFiles
from shalott.cluster.system import Observation
from shalott.cluster.systems.rocketmq_original.admin import TABLES, Admin, hosts_at
from shalott.cluster.systems.rocketmq_original.config import CONTROLLERS, GROUP
from shalott.cluster.systems.rocketmq_original.parameters import (
    PORTS,
    controllers_are_jraft,
    numbers,
    replication_of,
    services_of,
)
from shalott.core.errors import ClientError, Definite, HarnessError
from shalott.core.plan import SystemPlan

Answer = Observation  # of one service
View = dict[str, Any]  # a part of an observation
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
    """5.0.0 under controllers answers with the id of its file, -1, also when it has another by now.
    Its role is SYNC_MASTER or SLAVE once it has one."""
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
) -> View:
    """``ha``, ``epochs`` and ``raft`` are None where no service answers them.
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
    # Whom a slave with a list of connections follows is told; that it follows none is told, too.
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


def _ha_offsets(ha: Answer | None) -> View:
    """How far each slave has acknowledged, as the master knows it."""
    connections = (ha or {}).get("haConnectionInfo") or ()
    if not (ha or {}).get("master"):
        return {}
    return {"acknowledged": {str(c.get("addr")): c.get("slaveAckOffset") for c in connections}}


def _followed(ha: Answer | None, name_of: NameOf) -> str | None:
    client = (ha or {}).get("haClientRuntimeInfo") or {}
    return name_of(str(client.get("masterAddr") or "")) or None


def _connected(ha: Answer | None, name_of: NameOf, *, in_sync: bool) -> list[str] | None:
    """None: it is not said. A connection's address is the slave's."""
    if ha is None:
        return None
    connections = ha.get("haConnectionInfo") or ()
    found = [c for c in connections if c.get("inSync") or not in_sync]
    names = [name_of(str(c.get("addr") or "").lstrip("/")) for c in found]
    return sorted(dict.fromkeys(name for name in names if name))


def add_slaves(claim: View, connected: Sequence[str]) -> None:
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


def registered(cluster_info: Answer, name_of: NameOf) -> View:
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
) -> View:
    """``metadata``: the header that answers 1005. ``sets``: the body that answers 1006, which the
    leader alone has."""
    leads = metadata.get("isLeader") == "true"
    leader = name_of(metadata.get("controllerLeaderAddress") or "")
    view: View = {
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


def _set_of(info: Answer, name_of: NameOf) -> View:
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


LOOK_MS = 2000
T = TypeVar("T")
Members = Mapping[str, Mapping[str, str]]  # by service: ids in its Raft group, by node


class Views:
    """Of the nodes of one plan."""

    def __init__(self, plan: SystemPlan, admin: Admin, members: Members) -> None:
        self._plan = plan
        self._admin = admin
        self._members = members
        self._replication = replication_of(plan.parameters)
        self._is_new = numbers(str(plan.parameters["version"])) >= (5, 0, 0)
        self._hides_slaves = self._replication == "master-slave" and not self._is_new
        self._nodes_by_host: dict[str, str] = {}  # as the harness reaches them

    def address(self, cluster: Cluster, node: str, port: str) -> str:
        at = cluster.endpoint(node, port)
        return f"{at.host}:{at.port}"

    def _name_of(self, cluster: Cluster, address: str) -> str:
        """The node of an address, by its host: nodes have one each."""
        if not self._nodes_by_host:
            self._nodes_by_host = {cluster.endpoint(n, "remoting").host: n for n in cluster.nodes}
        return self._nodes_by_host.get(address.rpartition(":")[0], "")

    async def observe(self, cluster: Cluster, node: str) -> Observation:
        """As ``System.observe``. Raises ClientError."""
        services = services_of(self._plan, node)
        asked = {
            "broker": self._claim,
            "nameserver": self._registered,
            "controller": self.controller,
        }
        hosted = [service for service in asked if service in services]
        found: list[View | BaseException] = await asyncio.gather(
            *(asked[service](cluster, node) for service in hosted), return_exceptions=True
        )
        answers: dict[str, View] = {}
        for service, answer in zip(hosted, found, strict=True):
            if isinstance(answer, dict):
                answers[service] = answer
            elif not isinstance(answer, ClientError):
                raise answer
        if not answers:
            raise next(each for each in found if isinstance(each, ClientError))
        view: View = {
            "status": "running",
            "services": list(services),
            "running": [node],
            "partitions": [],
            "claims": [answers["broker"]] if "broker" in answers else [],
        }
        if "nameserver" in answers:
            view |= answers["nameserver"]
            view["running"] = sorted({node, *view["registered"]})
        if "controller" in answers:
            view["controller"] = answers["controller"]
        return view

    async def observe_with_slaves(self, cluster: Cluster, node: str) -> Observation:
        """And whose connections a master has that can't be asked: a look into the node, which
        takes too long for every look while there is load. Raises ClientError."""
        view = await self.observe(cluster, node)
        for claim in view["claims"]:
            if self._hides_slaves and claim["role"] == "master":
                try:
                    table = await cluster.processes.run_command(node, ["cat", *TABLES], LOOK_MS)
                except HarnessError:  # it died between the two looks
                    continue
                hosts = hosts_at(table.output, PORTS["ha"])
                add_slaves(claim, [self._name_of(cluster, f"{h}:0") for h in hosts])
        return view

    async def _claim(self, cluster: Cluster, node: str) -> View:
        address, ask = self.address(cluster, node, "remoting"), self._admin
        member = self._members["broker"].get(node, "")
        in_raft = self._replication == "dledger"
        properties, runtime, ha, epochs, raft = await asyncio.gather(
            ask.properties(address, RequestCode.GET_BROKER_CONFIG),
            ask.runtime_info(address),
            _or_none(
                lambda: ask.json(address, RequestCode.GET_BROKER_HA_STATUS),
                wanted=self._is_new and not in_raft,
            ),
            _or_none(
                lambda: ask.json(address, RequestCode.GET_BROKER_EPOCH_CACHE),
                wanted=self._replication == "controller",
            ),
            self._raft(cluster, node, "broker", "raft", f"store/dledger-{member}", wanted=in_raft),
        )
        names = {member: each for each, member in self._members["broker"].items()}
        return claim_of(
            node, properties, runtime, ha, epochs, raft,
            lambda at: self._name_of(cluster, at), names,
        )  # fmt: skip

    async def _raft(
        self,
        cluster: Cluster,
        node: str,
        service: str,
        port: str,
        store: str,
        *,
        wanted: bool = True,
    ) -> Answer | None:
        """What a member of a Raft group answers, with its term, which stands in a file of its own.
        A term that changes meanwhile is unknown: the answer may be of either."""
        if not wanted:
            return None
        group = GROUP if service == "broker" else CONTROLLERS
        member = self._members[service].get(node, "")
        before = await self._term(cluster, node, store)
        address = self.address(cluster, node, port)
        found = await _or_none(lambda: self._admin.raft(address, group, member))
        if found is None:
            return None
        after = await self._term(cluster, node, store)
        return {**found, "term": before if before == after else None}

    async def _term(self, cluster: Cluster, node: str, store: str) -> int | None:
        files = cluster.files
        if not isinstance(files, ReadsDataFiles):
            return None
        return term_of(await files.read(node, f"{store}/currterm", 0))

    async def _registered(self, cluster: Cluster, node: str) -> View:
        address = self.address(cluster, node, "nameserver")
        answer = await self._admin.json(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        return registered(answer, lambda at: self._name_of(cluster, at))

    async def controller(self, cluster: Cluster, node: str) -> View:
        """A controller's own view. Raises ClientError."""
        address = self.address(cluster, node, "controller")
        member = self._members["controller"].get(node, "")
        answer, raft = await asyncio.gather(
            self._admin.ask(address, RequestCode.CONTROLLER_GET_METADATA_INFO),
            self._raft(
                cluster, node, "controller", "controller", f"controller/dledger-{member}",
                wanted=not controllers_are_jraft(self._plan),  # which does not tell its term
            ),
        )  # fmt: skip
        sets = await _or_none(
            lambda: self._admin.json(
                address,
                RequestCode.CONTROLLER_GET_SYNC_STATE_DATA,
                body=msgspec.json.encode([GROUP]),
            ),
            wanted=answer.ext.get("isLeader") == "true",
        )
        return controller_of(answer.ext, raft, sets, lambda at: self._name_of(cluster, at))


async def _or_none(ask: Callable[[], Awaitable[T]], *, wanted: bool = True) -> T | None:
    """None also for an answer that says no: a release that does not know the request."""
    if not wanted:
        return None
    try:
        return await ask()
    except Definite:
        return None
