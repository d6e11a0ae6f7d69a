"""Asking the services of one node what they believe, and putting the answers together.

A service that does not answer leaves its part unknown. If none of a node's answers, the node can't
be asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from shalott.broker.rocket.remoting.codes import RequestCode
from shalott.cluster.cluster import Cluster
from shalott.cluster.parts import ReadsDataFiles
from shalott.cluster.systems.rocketmq_original import observing
from shalott.cluster.systems.rocketmq_original.asking import Admin
from shalott.cluster.systems.rocketmq_original.config import CONTROLLERS, GROUP
from shalott.cluster.systems.rocketmq_original.connections import TABLES, hosts_at
from shalott.cluster.systems.rocketmq_original.layout import (
    PORTS,
    controllers_are_jraft,
    replication_of,
    services_of,
)
from shalott.cluster.systems.rocketmq_original.parameters import numbers
from shalott.core.errors import ClientError, Definite, HarnessError
from shalott.core.plan import SystemPlan

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

    async def observe(self, cluster: Cluster, node: str) -> Mapping[str, Any]:
        """As ``System.observe``. Raises ClientError."""
        services = services_of(self._plan, node)
        asked = {
            "broker": self._claim,
            "nameserver": self._registered,
            "controller": self.controller,
        }
        hosted = [service for service in asked if service in services]
        found: list[dict[str, Any] | BaseException] = await asyncio.gather(
            *(asked[service](cluster, node) for service in hosted), return_exceptions=True
        )
        answers: dict[str, dict[str, Any]] = {}
        for service, answer in zip(hosted, found, strict=True):
            if isinstance(answer, dict):
                answers[service] = answer
            elif not isinstance(answer, ClientError):
                raise answer
        if not answers:
            raise next(each for each in found if isinstance(each, ClientError))
        view: dict[str, Any] = {
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

    async def observe_with_slaves(self, cluster: Cluster, node: str) -> Mapping[str, Any]:
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
                observing.add_slaves(claim, [self._name_of(cluster, f"{h}:0") for h in hosts])
        return view

    async def _claim(self, cluster: Cluster, node: str) -> dict[str, Any]:
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
        return observing.claim_of(
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
    ) -> Mapping[str, Any] | None:
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
        return observing.term_of(await files.read(node, f"{store}/currterm", 0))

    async def _registered(self, cluster: Cluster, node: str) -> dict[str, Any]:
        address = self.address(cluster, node, "nameserver")
        answer = await self._admin.json(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        return observing.registered(answer, lambda at: self._name_of(cluster, at))

    async def controller(self, cluster: Cluster, node: str) -> dict[str, Any]:
        """A controller's own view. Raises ClientError."""
        address = self.address(cluster, node, "controller")
        member = self._members["controller"].get(node, "")
        answer, raft = await asyncio.gather(
            self._admin.ask(address, RequestCode.CONTROLLER_GET_METADATA_INFO),
            self._raft(
                cluster, node, "controller", "controller", f"controller/dledger-{member}",
                wanted=not controllers_are_jraft(self._plan),  # which tells its term to nobody
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
        return observing.controller_of(
            answer.ext, raft, sets, lambda at: self._name_of(cluster, at)
        )


async def _or_none(ask: Callable[[], Awaitable[T]], *, wanted: bool = True) -> T | None:
    """None also for an answer that says no: a release that does not know the request."""
    if not wanted:
        return None
    try:
        return await ask()
    except Definite:
        return None
