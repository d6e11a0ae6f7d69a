"""What an operator of the original does, as its manual has it, and no tool of ours.

*Master and slaves*: he writes another role into a slave's properties and restarts it; the other
slaves hear of the new master from the name servers. A former master's broker stays off until he has
seen to it (await_others.py), and he does so when the other slaves have found the new master: a
slave that meets the old one again before, on its old address, stays with it
(docs/evidence/analyses/README.md). It is given the slave's place in its properties and an empty
store before it follows: HAService copies from where a slave's log ends, and never cuts what was
written apart.

*Controllers*: he has them elect (ELECT_MASTER, 1002), and takes a broker that is gone for good out
of the group (CLEAN_BROKER_DATA, 1011).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

from tenacity import retry_if_exception_type, wait_fixed

from shalott.broker.rocket.remoting.command import RequestCode
from shalott.cluster.cluster import Cluster
from shalott.cluster.system import Claim
from shalott.cluster.systems.rocket import master_slave as own_operator
from shalott.cluster.systems.rocketmq_original.config import CLUSTER, GROUP
from shalott.cluster.systems.rocketmq_original.parameters import nodes_with
from shalott.cluster.systems.rocketmq_original.system import RocketmqOriginal
from shalott.cluster.waiting import ask_until, retrying
from shalott.core.errors import ClientError, Definite, HarnessError, Indefinite

PROPERTIES = "/data/conf/broker.properties"
# Marks for entry.sh: it removes the store; its broker starts, though name servers, which may not
# have heard of the end of a master that was cut off, still name that one.
EMPTY_STORE = "/data/conf/empty-store"
PROMOTED = "/data/conf/promoted"
WITHIN_S = 30.0  # a Java machine that was just started answers by then
FOUND_WITHIN_S = 45.0  # slaves register every 30 s, and hear of the new master then
RETRY_S = 0.5
RETRY = wait_fixed(RETRY_S)
COMMAND_TIMEOUT_MS = 10_000


class MasterSlaveOriginal(RocketmqOriginal):
    """A ``RocketmqOriginal`` that is a ``FailsOver`` and a ``TakesReports`` as well."""

    async def fail_over(self, cluster: Cluster, old: str, restarted: list[str]) -> None:
        """The slave whose log goes furthest becomes the master; all of them are asked first."""
        others = [node for node in self._brokers(cluster, old) if node != old]
        claims = {node: await self._own_claim(cluster, node) for node in others}
        if any(claim["role"] == "master" for claim in claims.values()):
            raise Definite("there is another master")
        new = max(claims, key=lambda node: (int(claims[node]["end_offset"] or 0), node))
        role = str(self._plan.policy.get("brokerRole", "ASYNC_MASTER"))
        restarted.append(new)
        await self._change(cluster, new, {"brokerRole": role, "brokerId": "0"}, PROMOTED)
        await self._await_claim(cluster, new, lambda claim: claim["role"] == "master")

        async def is_named() -> bool:
            return await self._is_named(cluster, new, [n for n in cluster.nodes if n != old])

        await ask_until(is_named, WITHIN_S, RETRY)

    async def rejoin(self, cluster: Cluster, node: str) -> None:
        """It takes the place of the slave that took its own."""
        brokers = self._brokers(cluster, node)
        others = [other for other in brokers if other != node]
        claims = {other: await self._own_claim(cluster, other) for other in others}
        if not any(claim["role"] == "master" for claim in claims.values()):
            return  # no other node took its place

        async def is_followed() -> bool:
            return await self._is_followed(cluster, others)

        await ask_until(is_followed, FOUND_WITHIN_S, RETRY)
        taken = [claim["broker_id"] for claim in claims.values()]
        free = min(number for number in range(1, len(brokers) + 1) if number not in taken)
        properties = {"brokerRole": "SLAVE", "brokerId": str(free)}
        await self._change(cluster, node, properties, EMPTY_STORE)
        await self._await_claim(cluster, node, lambda claim: claim["role"] == "slave")

    async def report_nonsense(self, cluster: Cluster, node: str) -> Callable[[], None]:
        self._brokers(cluster, node)
        return await own_operator.report_nonsense(cluster, node)

    async def _is_named(self, cluster: Cluster, master: str, nodes: Sequence[str]) -> bool:
        """Whether these nodes' name servers know that master: since 5.0 it tells them 10 s after
        its start."""
        try:
            views = [await self.observe(cluster, node) for node in nodes]
        except ClientError:
            return False
        servers = [view["name_server"] for view in views if "name_server" in view]
        return all(server["master"] == master for server in servers)

    async def _is_followed(self, cluster: Cluster, nodes: Sequence[str]) -> bool:
        """Whether one of them is a master that all others are connected to."""
        try:
            views = [await self._views.observe_with_slaves(cluster, node) for node in nodes]
        except ClientError:
            return False
        claims = [claim for view in views for claim in view["claims"]]
        masters = [claim for claim in claims if claim["role"] == "master"]
        return len(masters) == 1 and len(nodes) == 1 + len(masters[0]["synchronised"] or ())

    def _brokers(self, cluster: Cluster, node: str) -> tuple[str, ...]:
        """Raises Definite for a node without a broker."""
        brokers = nodes_with(self._plan, "broker", cluster.nodes)
        if node not in brokers:
            raise Definite(f"{node} hosts no broker")
        return brokers

    async def _own_claim(self, cluster: Cluster, node: str) -> Claim:
        claims = (await self.observe(cluster, node))["claims"]
        if not claims:
            raise Indefinite(f"the broker of {node} does not answer")
        claim: Claim = claims[0]
        return claim

    async def _await_claim(
        self, cluster: Cluster, node: str, is_right: Callable[[Claim], bool]
    ) -> None:
        async def look() -> None:
            claim = await self._own_claim(cluster, node)
            if not is_right(claim):
                raise Indefinite(f"{node} is {claim['role']}")

        await retrying(WITHIN_S, RETRY, retry_if_exception_type(ClientError))(look)

    async def _change(
        self, cluster: Cluster, node: str, properties: Mapping[str, str], mark: str
    ) -> None:
        """Write the properties into its file, leave a mark and restart it. Raises ClientError."""
        script = f"{edit_words(properties, PROPERTIES)} && touch {mark}"
        try:
            done = await cluster.processes.run_command(
                node, ["sh", "-c", script], COMMAND_TIMEOUT_MS
            )
            if done.exit_code != 0:
                raise Definite(f"{node}'s properties can't be changed: {done.output.strip()}")
            await cluster.processes.stop(node)
            await cluster.processes.start(node)
        except HarnessError as error:
            raise Indefinite(str(error)) from error


def edit_words(properties: Mapping[str, str], path: str) -> str:
    """A command that gives these properties these values in a file, whether they were in it."""
    names = "|".join(properties)
    kept = f"grep -vE {shlex.quote(f'^({names})=')} {path} > {path}.new"
    lines = "".join(f"{name}={value}\\n" for name, value in properties.items())
    return f"{kept}; printf {shlex.quote(lines)} >> {path}.new && mv {path}.new {path}"


class ControllerOriginal(RocketmqOriginal):
    """A ``RocketmqOriginal`` that is a ``FailsOver`` and a ``ChangesMembers`` as well."""

    left_out: tuple[str, ...] = ()

    async def fail_over(self, cluster: Cluster, old: str, restarted: list[str]) -> None:
        """Have the controllers elect the broker whose log goes furthest of those that are there."""
        leader, group = await self._group(cluster, [n for n in cluster.nodes if n != old])
        ends: dict[str, int] = {}
        for node in group:
            if node != old:
                for claim in (await self.observe(cluster, node))["claims"]:
                    ends[node] = int(claim["end_offset"] or 0)
        if not ends:
            raise Definite("no other broker is there")
        wanted = max(ends, key=lambda node: (ends[node], node))
        fields = {**self._fields(), "brokerId": str(group[wanted]), "designateElect": "true"}
        await self._admin.ask(leader, RequestCode.CONTROLLER_ELECT_MASTER, fields)

    async def rejoin(self, cluster: Cluster, node: str) -> None:
        """The controllers tell it whom to follow."""

    def why_not_leave(self, node: str) -> str:
        if self._hosts(node, "controller"):
            return "it hosts a controller, and the controllers are a fixed group"
        return "" if self._hosts(node, "broker") else "it hosts no broker"

    async def members(self, cluster: Cluster, node: str) -> Sequence[str]:
        return sorted((await self._group(cluster, [node, *cluster.nodes]))[1])

    async def running_members(self, cluster: Cluster, node: str) -> Sequence[str]:
        found = await self._leader_view(cluster, [node, *cluster.nodes])
        alive: Sequence[str] = found[1]["alive"]
        return alive

    async def forget(self, cluster: Cluster, node: str, by: str) -> None:
        leader, group = await self._group(cluster, [by, *cluster.nodes])
        if node in group:
            fields = {
                **self._fields(),
                "brokerControllerIdsToClean": str(group[node]),
                "isCleanLivingBroker": "false",
            }
            await self._admin.ask(leader, RequestCode.CLEAN_BROKER_DATA, fields)
        self.left_out = (*self.left_out, node)

    async def admit(self, cluster: Cluster, node: str, by: str) -> None:
        """It registers by itself when it starts."""
        self.left_out = tuple(other for other in self.left_out if other != node)

    def _fields(self) -> dict[str, str]:
        return {"clusterName": CLUSTER, "brokerName": GROUP}

    async def _group(self, cluster: Cluster, nodes: Sequence[str]) -> tuple[str, dict[str, int]]:
        """The leader's address, and the brokers that it knows with their ids."""
        leader, view = await self._leader_view(cluster, nodes)
        ids: dict[str, int] = view["ids"]
        return leader, ids

    async def _leader_view(self, cluster: Cluster, nodes: Sequence[str]) -> tuple[str, Claim]:
        """By whichever of these nodes hosts the leader. Raises ClientError."""
        reason: ClientError = Indefinite("no controller leads")
        for node in dict.fromkeys(nodes):
            if not self._hosts(node, "controller"):
                continue
            try:
                seen = await self._views.controller(cluster, node)
            except ClientError as error:
                reason = error
                continue
            if GROUP in seen.get("groups", {}):
                return self._views.address(cluster, node, "controller"), seen["groups"][GROUP]
        raise reason
