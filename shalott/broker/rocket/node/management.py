"""The HTTP API of a RocketMQ node, on ports["management"]: what it believes, and the verbs that
operators have (``shalott ctl``).

No login is needed, as on RocketMQ's ports. Errors look as in broker/rabbit/management.

    GET  /api/shalott/claims           this node's own view: roles, epochs, routes
    GET  /api/health                   200 when all services run, else 503
    GET  /api/shalott/ha-status        the body of GET_BROKER_HA_STATUS (907), with nodes by name
    GET  /api/shalott/sync-state-set   what the controllers' leader knows of the set (1006)
    GET  /api/shalott/members          whom the controllers know in this group, and who lives
    DELETE /api/shalott/members/NODE   have them forget that node's broker (1011), which is down
    GET  /api/shalott/epoch-cache      the epochs of this broker's log (1007)
    GET  /api/shalott/log-digest       ?from=&to=&block=: the log, block by block
    GET  /api/shalott/queue-digest     ?from=: the consume queues: how many messages, and which
    GET  /api/shalott/table-digest     topics and subscription groups: how many, and which
    POST /api/shalott/promote          {"epoch": n?}: this slave becomes the master (master-slave)
    POST /api/shalott/follow           {"master": node, "epoch": n?}: follow that master
    POST /api/shalott/elect-master     {"broker": node?}: elect anew (controller)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from shalott.broker.base.env import Env
from shalott.broker.base.errors import BrokerError, StorageError
from shalott.broker.base.http_api import (
    ApiError,
    Request,
    Response,
    RouteOf,
    bad_request,
    decode_body,
    find,
    json_response,
    not_found,
    unavailable,
)
from shalott.broker.rocket.commitlog.api import Store
from shalott.broker.rocket.commitlog.replica import HaConnectionInfo, HaStatus, Replica
from shalott.broker.rocket.config import AddressBook, RocketConfig
from shalott.broker.rocket.controller.client import ControllerClient
from shalott.broker.rocket.controller.messages import NO_BROKER_ID, ReplicaIdentity
from shalott.broker.rocket.controller.service import Controller
from shalott.broker.rocket.ha.replica import MasterSlaveReplica
from shalott.broker.rocket.nameserver.server import NameServer
from shalott.broker.rocket.node.log_digest import (
    BLOCK_BYTES,
    BLOCK_BYTES_MAX,
    digest_blocks,
    digest_queues,
    digest_tables,
)
from shalott.broker.rocket.processor.tables import Tables
from shalott.broker.rocket.replicas.replica import AutoSwitchReplica


class ManagedNode(Protocol):
    """What is asked of a node, and of what runs on it."""

    @property
    def env(self) -> Env: ...

    @property
    def config(self) -> RocketConfig: ...

    @property
    def phase(self) -> str: ...

    @property
    def book(self) -> AddressBook: ...

    @property
    def replica(self) -> Replica | None: ...

    @property
    def store(self) -> Store | None: ...

    @property
    def tables(self) -> Tables | None: ...

    @property
    def name_server(self) -> NameServer | None: ...

    @property
    def controller(self) -> Controller | None: ...

    @property
    def controllers(self) -> ControllerClient | None: ...


class Promote(msgspec.Struct, forbid_unknown_fields=True):
    """``epoch``: above all that the group has had; by default the node's last one and one."""

    epoch: int | None = None


class ElectMaster(msgspec.Struct, forbid_unknown_fields=True):
    """``broker``: the node that shall have it; by default the best one."""

    broker: str | None = None


class Follow(msgspec.Struct, forbid_unknown_fields=True):
    master: str
    epoch: int | None = None


async def respond(node: ManagedNode, request: Request) -> Response:
    """Never raises a BrokerError: each becomes a response that says what is the matter."""
    try:
        handler, parameters = find(ROUTES, request.method, request.segments)
        return await handler(node, request, parameters)
    except ApiError as error:
        return error.response()
    except BrokerError as error:
        return bad_request(str(error)).response()


async def claims(node: ManagedNode, request: Request, parameters: Mapping[str, str]) -> Response:
    view: dict[str, object] = {
        "node": node.config.name,
        "status": node.phase,
        "incarnation": node.env.incarnation,
        "system": node.config.system,
        "services": list(node.config.services),
        "running_nodes": running_nodes(node),
        "partitions": [],
        "claims": [] if node.replica is None else [claim_of(node.replica)],
    }
    if node.controller is not None:
        view["controller"] = node.controller.claim()
    if node.name_server is not None:
        view["registered"] = registered_nodes(node, node.name_server)
        view["name_server"] = msgspec.to_builtins(
            node.name_server.routes.cluster_info(), str_keys=True
        )
    return json_response(view)


def claim_of(replica: Replica) -> dict[str, object]:
    """With how far the log goes, and how far readers are served."""
    store = replica.store
    ends = {
        "end_offset": store.log.max_offset,
        "flushed_offset": store.log.flushed_offset,
        "readable_offset": store.dispatched_offset,
    }
    claim = replica.claim()
    names = {
        # Each system has states of its own; who says that it is master takes messages.
        "state": "running" if claim["role"] == "master" else str(claim["state"]).lower(),
        "synchronised": named(claim["synchronised"], claim["mirrors"]),
    }
    return {**ends, **claim, **names}


def running_nodes(node: ManagedNode) -> list[str]:
    """This node, and those whose brokers are registered at the name server here."""
    names = [node.config.name]
    if node.name_server is not None:
        names += registered_nodes(node, node.name_server)
    return sorted(dict.fromkeys(names))


def registered_nodes(node: ManagedNode, name_server: NameServer) -> list[str]:
    """Those whose brokers clients are told of by the name server here; this node may not be yet."""
    names = [node.book.name_of(address) for address in name_server.routes.live_addresses()]
    return sorted(dict.fromkeys(name for name in names if name))


async def health(node: ManagedNode, request: Request, parameters: Mapping[str, str]) -> Response:
    if node.phase != "running":
        reason = f"the node is {node.phase}"
        return json_response({"status": "failed", "reason": reason}, 503)
    return json_response({"status": "ok"})


async def ha_status(node: ManagedNode, request: Request, parameters: Mapping[str, str]) -> Response:
    if node.replica is None:
        raise no_broker(node)
    brokers = node.config.nodes_with("broker")
    status = with_names(node.replica.ha_status(), node.config.name, brokers, node.book.node_of)
    return json_response(status)


def no_broker(node: ManagedNode) -> ApiError:
    """Why nothing can be asked of the node's broker."""
    if "broker" not in node.config.services:
        return unavailable(f"this node hosts no broker: {', '.join(node.config.services)}")
    return unavailable(f"there is no broker here now: the node is {node.phase}")


async def log_digest(
    node: ManagedNode, request: Request, parameters: Mapping[str, str]
) -> Response:
    """One digest a block, at most BLOCKS_MAX of them: ``next`` is where to go on."""
    store = stored(node)
    first, readable = store.log.min_offset, store.dispatched_offset
    block_bytes = number(request, "block", BLOCK_BYTES)
    if not 1 <= block_bytes <= BLOCK_BYTES_MAX:
        raise bad_request(f"block must be between 1 and {BLOCK_BYTES_MAX}")
    start = max(first, number(request, "from", first))
    end = min(store.log.max_offset, number(request, "to", readable))
    answer = {"min_offset": first, "readable_offset": readable, "from": start}
    answer["max_offset"] = store.log.max_offset
    try:
        digests, following = await digest_blocks(store.log, start, end, block_bytes)
    except StorageError as error:
        return json_response(answer | {"unreadable": str(error)})
    return json_response(answer | {"digests": digests, "next": following})


async def queue_digest(
    node: ManagedNode, request: Request, parameters: Mapping[str, str]
) -> Response:
    try:
        count, digest = await digest_queues(stored(node), number(request, "from", 0))
    except StorageError as error:
        return json_response({"unreadable": str(error)})
    return json_response({"count": count, "digest": digest})


async def table_digest(
    node: ManagedNode, request: Request, parameters: Mapping[str, str]
) -> Response:
    if node.tables is None:
        raise unavailable(f"there is no broker here now: the node is {node.phase}")
    count, digest = digest_tables(node.tables)
    return json_response({"count": count, "digest": digest})


def stored(node: ManagedNode) -> Store:
    """Raises ApiError(503) while there is no broker."""
    if node.store is None:
        raise unavailable(f"there is no broker here now: the node is {node.phase}")
    return node.store


def number(request: Request, name: str, default: int) -> int:
    """Raises ApiError(400) for what is none."""
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()):
        raise bad_request(f"{name} must be a number that is not negative, not {text!r}")
    return int(text)


def master_slave(node: ManagedNode) -> MasterSlaveReplica:
    """Raises ApiError: 404 in the other systems, 503 while the broker starts."""
    if node.config.system != "master-slave":
        raise not_found()
    if not isinstance(node.replica, MasterSlaveReplica) or node.phase != "running":
        raise no_broker(node)
    return node.replica


async def promote(node: ManagedNode, request: Request, parameters: Mapping[str, str]) -> Response:
    wanted = decode_body(request, Promote)
    replica = master_slave(node)
    await replica.promote(wanted.epoch)
    return json_response(replica.claim())


async def follow(node: ManagedNode, request: Request, parameters: Mapping[str, str]) -> Response:
    wanted = decode_body(request, Follow)
    replica = master_slave(node)
    await replica.follow(wanted.master, wanted.epoch)
    return json_response(replica.claim())


def controllers(node: ManagedNode) -> ControllerClient:
    """Raises ApiError: 404 in the other systems."""
    if node.controllers is None:
        raise not_found()
    return node.controllers


async def sync_state_set(
    node: ManagedNode, request: Request, parameters: Mapping[str, str]
) -> Response:
    """As the controllers' leader knows it."""
    group = node.config.broker.broker_name
    known = await controllers(node).sync_state_data([group])
    return json_response(msgspec.to_builtins(known, str_keys=True))


async def members(node: ManagedNode, request: Request, parameters: Mapping[str, str]) -> Response:
    known = await _replicas(node)
    alive = [replica for replica in known if replica.alive]
    return json_response(
        {
            "node": node.config.name,
            "members": _nodes(node, known),
            "running_nodes": _nodes(node, alive),
        }
    )


def _nodes(node: ManagedNode, replicas: Sequence[ReplicaIdentity]) -> list[str]:
    """Whose brokers they are, each once: one that lost its identity is registered twice."""
    names = [node.book.name_of(replica.broker_address) for replica in replicas]
    return sorted(dict.fromkeys(name for name in names if name))


async def forget_member(
    node: ManagedNode, request: Request, parameters: Mapping[str, str]
) -> Response:
    """By every id that it has. The controllers refuse it while it lives."""
    name, settings = parameters["name"], node.config.broker
    known = await _replicas(node)
    ids = [r.broker_id for r in known if node.book.node_of(r.broker_address) == name]
    if not ids:
        raise not_found()
    await controllers(node).clean_broker_data(settings.cluster_name, settings.broker_name, ids)
    return Response(204)


async def epoch_cache(
    node: ManagedNode, request: Request, parameters: Mapping[str, str]
) -> Response:
    controllers(node)
    if not isinstance(node.replica, AutoSwitchReplica):
        raise no_broker(node)
    return Response(200, node.replica.epoch_cache())


async def elect_master(
    node: ManagedNode, request: Request, parameters: Mapping[str, str]
) -> Response:
    """The controllers' leader decides: with a broker named it must be that one, also if the old
    master lives.
    """
    wanted = decode_body(request, ElectMaster)
    client, settings = controllers(node), node.config.broker
    broker_id = NO_BROKER_ID
    if wanted.broker is not None:
        broker_id = await _id_of(node, wanted.broker)
    election = await client.elect_master(
        settings.cluster_name, settings.broker_name, broker_id, designate=wanted.broker is not None
    )
    master = election.master
    return json_response(
        {
            "elected": election.elected,
            "master": node.book.name_of(master.address),
            "epoch": master.epoch,
            "sync_state_set": list(master.sync_state_set),
        }
    )


async def _replicas(node: ManagedNode) -> Sequence[ReplicaIdentity]:
    """Whom the controllers know in this node's group."""
    group = node.config.broker.broker_name
    known = (await controllers(node).sync_state_data([group])).get(group)
    return () if known is None else (*known.in_sync_replicas, *known.not_in_sync_replicas)


async def _id_of(node: ManagedNode, name: str) -> int:
    """A broker's id by its node's name. Raises ApiError(400)."""
    for replica in await _replicas(node):
        if node.book.node_of(replica.broker_address) == name:
            return replica.broker_id
    raise bad_request(f"the controllers know no broker on {name}")


ROUTES: tuple[RouteOf[ManagedNode], ...] = (
    RouteOf("GET", "/api/shalott/claims", claims),
    RouteOf("GET", "/api/health", health),
    RouteOf("GET", "/api/shalott/ha-status", ha_status),
    RouteOf("GET", "/api/shalott/sync-state-set", sync_state_set),
    RouteOf("GET", "/api/shalott/members", members),
    RouteOf("DELETE", "/api/shalott/members/:name", forget_member),
    RouteOf("GET", "/api/shalott/epoch-cache", epoch_cache),
    RouteOf("GET", "/api/shalott/log-digest", log_digest),
    RouteOf("GET", "/api/shalott/queue-digest", queue_digest),
    RouteOf("GET", "/api/shalott/table-digest", table_digest),
    RouteOf("POST", "/api/shalott/elect-master", elect_master),
    RouteOf("POST", "/api/shalott/promote", promote),
    RouteOf("POST", "/api/shalott/follow", follow),
)


# -- names in place of addresses -------------------------------------------------------------------
# HAService's wire does not say who a slave is, and slaves on one host share its address (in the
# local world all do). A name is given where it is certain: by an address of its own, or because
# no other node is left; otherwise the names that it may be.


def named(synchronised: list[str], mirrors: list[str]) -> list[str]:
    """Who is in sync, by name: addresses are, when there are as many as there can be."""
    if all(name in mirrors for name in synchronised):
        return synchronised
    return mirrors if len(synchronised) >= len(mirrors) else []


def with_names(
    status: HaStatus, node: str, brokers: Sequence[str], node_of: Callable[[str], str]
) -> HaStatus:
    """The body of GET_BROKER_HA_STATUS with names: ``node`` is who tells it, ``slave`` whom a
    connection is of, ``master`` who is followed. ``node_of``: of an advertised address, or ""."""
    others = [name for name in brokers if name != node]
    links = [(_name(link, others), link) for link in status["haConnectionInfo"]]
    newest = {name: link for name, link in links if name}
    left = [name for name in others if name not in newest]
    # A slave that connects again leaves its older connection behind until housekeeping ends it.
    nameless = [link for name, link in links if not name]
    nameless = nameless[-len(left) :] if left else nameless
    perhaps = " or ".join(left)
    told: HaStatus = {"node": node, **status}
    told["haConnectionInfo"] = [
        {**link, "slave": name or perhaps or link["addr"]}
        for name, link in links
        if (link is newest[name] if name else any(link is kept for kept in nameless))
    ]
    client = status.get("haClientRuntimeInfo")
    if client:
        told["haClientRuntimeInfo"] = {"master": node_of(client["masterAddr"]), **client}
    return told


def _name(link: HaConnectionInfo, others: Sequence[str]) -> str:
    """ "" if the connection does not tell it."""
    told = (str(link.get("slave", "")), str(link["addr"]))
    return next((name for name in told if name in others), "")
