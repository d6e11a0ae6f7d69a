"""/api/queues: list, show, declare, delete, purge, synchronise."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from shalott.broker.base.errors import CallTimeout, ProcessError
from shalott.broker.base.http_api import (
    Request,
    Response,
    bad_request,
    decode_body,
    is_true,
    json_response,
    not_found,
    unavailable,
)
from shalott.broker.rabbit.amqp.arguments import (
    check_queue_arguments,
    check_same,
    check_same_queue_arguments,
)
from shalott.broker.rabbit.amqp.queue_protocol import Count, Delete, Inspect, Purge, Stats
from shalott.broker.rabbit.management.agent import relay
from shalott.broker.rabbit.management.backend import (
    ManagementBackend,
    Route,
    queue_rows,
    require_right,
    require_vhost,
    running_queues,
)
from shalott.broker.rabbit.management.bodies import Flag, flag, short
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.parameters import vhost_limits
from shalott.broker.rabbit.metadata.policies import in_force
from shalott.broker.rabbit.metadata.records import QueueRow, Record, queue_key
from shalott.broker.rabbit.mirrored.messages import (
    CancelSync,
    CountOperations,
    Operations,
    SyncQueue,
)
from shalott.broker.rabbit.processes.messages import Failed, Message, Pid

CALL_TIMEOUT_MS = 5000


class QueueBody(msgspec.Struct, kw_only=True):
    """What PUT takes. Unknown keys are ignored, as RabbitMQ does."""

    durable: Flag = False
    auto_delete: Flag = False
    arguments: dict[str, object] = {}
    node: str | None = None


class ActionBody(msgspec.Struct):
    action: str = ""


def find_row(backend: ManagementBackend, parameters: Mapping[str, str]) -> QueueRow:
    """Raises ApiError(404)."""
    for row in queue_rows(backend):
        if (row.vhost, row.name) == (parameters["vhost"], parameters["name"]):
            return row
    raise not_found()


async def ask_master(backend: ManagementBackend, row: QueueRow, request: Message) -> Message:
    """Raises ApiError(503) if the queue has no master that can be reached, and ProcessError."""
    if row.pid is None or not backend.runtime.is_alive(row.pid):
        raise unavailable(f"queue '{row.name}' has no master that can be reached")
    return await backend.runtime.call(row.pid, request, timeout_ms=CALL_TIMEOUT_MS)


async def list_queues(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    rows = queue_rows(backend)
    if "vhost" in parameters:
        require_vhost(backend, parameters["vhost"])
        rows = [row for row in rows if row.vhost == parameters["vhost"]]
    return json_response(await view_queues(backend, rows))


async def show_queue(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """With consistent=true in the query (our own) the tables' leader confirms that it is there, or
    is not: 503 while it can't.
    """
    if not is_true(request, "consistent"):
        return json_response(await view_queue(backend, find_row(backend, parameters)))
    running_queues(backend)
    key = queue_key(parameters["vhost"], parameters["name"])

    def read(tx: Transaction) -> Record | None:
        live, durable = tx.read("queue", key), tx.read("durable_queue", key)
        return durable if live is None else live

    row = await backend.metadata.transact(read, confirmed=True)
    if not isinstance(row, QueueRow):
        raise not_found()
    return json_response(await view_queue(backend, row))


async def put_queue(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """201 if it is new, 204 if it existed just so, 400 if it existed otherwise."""
    queues = running_queues(backend)
    vhost, name = parameters["vhost"], parameters["name"]
    require_vhost(backend, vhost)
    body = decode_body(request, QueueBody)
    if not short(name):
        raise bad_request("a queue needs a name")
    durable, auto_delete = flag(body.durable), flag(body.auto_delete)
    if body.node and (node := body.node.rpartition("@")[2]) != backend.config.name:
        if node not in backend.metadata.running_nodes():
            raise bad_request(f"the broker does not run on node {body.node}")
        return await relay(backend, node, request)
    require_right(backend, request, "configure", vhost, name)
    check_queue_arguments(f"queue '{name}' in vhost '{vhost}'", body.arguments)
    is_new = all((row.vhost, row.name) != (vhost, name) for row in queue_rows(backend))
    if is_new:
        _require_room(backend, vhost, name)
    row = await queues.declare(
        vhost=vhost,
        name=name,
        durable=durable,
        auto_delete=auto_delete,
        exclusive_owner=None,
        arguments=body.arguments,
    )
    where = f"queue '{name}' in vhost '{vhost}'"
    check_same("durable", where, durable, row.durable)
    check_same("auto_delete", where, auto_delete, row.auto_delete)
    check_same_queue_arguments(where, body.arguments, row.arguments)
    return Response(201 if is_new else 204)


def _require_room(backend: ManagementBackend, vhost: str, name: str) -> None:
    """Raises ApiError(400) if the vhost has as many queues as it may."""
    limit = vhost_limits(backend.metadata, vhost).get("max-queues", -1)
    if 0 <= limit <= sum(row.vhost == vhost for row in queue_rows(backend)):
        where = f"cannot declare queue '{name}' in vhost '{vhost}'"
        raise bad_request(f"{where}: queue limit in vhost '{vhost}' ({limit}) is reached")


async def delete_queue(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """With if-empty or if-unused in the query the master judges, and deletes: 400 if it is not."""
    queues = running_queues(backend)
    row = find_row(backend, parameters)
    require_right(backend, request, "configure", row.vhost, row.name)
    conditions = Delete(
        if_unused=is_true(request, "if-unused"), if_empty=is_true(request, "if-empty")
    )
    if conditions.if_unused or conditions.if_empty:
        answer = await ask_master(backend, row, conditions)
        if isinstance(answer, Failed):
            raise bad_request(f"queue '{row.name}' is {answer.kind.replace('_', ' ')}")
    else:
        await queues.remove(row)
    return Response(204)


async def purge_queue(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    running_queues(backend)
    row = find_row(backend, parameters)
    require_right(backend, request, "read", row.vhost, row.name)
    answer = await ask_master(backend, row, Purge())
    if not isinstance(answer, Count):
        raise unavailable(f"queue '{row.name}' can't be purged now: {_text(answer)}")
    return Response(204)


async def act_on_queue(
    backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
) -> Response:
    """Start or cancel a queue's synchronisation. The answer does not wait for the end.

    The body is ``{"action": "sync"}`` or ``{"action": "cancel_sync"}``.
    """
    running_queues(backend)
    row = find_row(backend, parameters)
    body = decode_body(request, ActionBody)
    actions: Mapping[str, Message] = {"sync": SyncQueue(), "cancel_sync": CancelSync()}
    if body.action not in actions:
        raise bad_request(f"unknown action '{body.action}': known are sync and cancel_sync")
    answer = await ask_master(backend, row, actions[body.action])
    if isinstance(answer, Failed) and answer.kind not in ("syncing", "not_syncing"):
        raise bad_request(f"queue '{row.name}' can't {body.action}: {_text(answer)}")
    return Response(204)


def _text(answer: Message) -> str:
    if isinstance(answer, Failed):
        return answer.text or answer.kind.replace("_", " ")
    return f"it answered {type(answer).__name__}"


ROUTES: tuple[Route, ...] = (
    Route("GET", "/api/queues", list_queues),
    Route("GET", "/api/queues/:vhost", list_queues),
    Route("GET", "/api/queues/:vhost/:name", show_queue),
    Route("PUT", "/api/queues/:vhost/:name", put_queue),
    Route("DELETE", "/api/queues/:vhost/:name", delete_queue),
    Route("DELETE", "/api/queues/:vhost/:name/contents", purge_queue),
    Route("POST", "/api/queues/:vhost/:name/actions", act_on_queue),
)


# -- what is shown of a queue ----------------------------------------------------------------------

# A queue as the management API shows it: its row, and what its master says of itself.

STAT_TIMEOUT_MS = 1000


def is_live(backend: ManagementBackend, row: QueueRow) -> bool:
    """Whether the row is the live one, and its master can be reached."""
    return (
        row.pid is not None
        and backend.metadata.read("queue", row.key) is not None
        and backend.runtime.is_alive(row.pid)
    )


def recorded_state(backend: ManagementBackend, row: QueueRow) -> str | None:
    """crashed or stopped, if the live row says so, even beside a live process; down, if there is
    only the durable one; else None (rabbit_amqqueue:info, list_down).
    """
    if backend.metadata.read("queue", row.key) is None:
        return "down"
    return None if row.state == "live" else row.state


async def view_queues(
    backend: ManagementBackend, rows: Sequence[QueueRow]
) -> list[dict[str, object]]:
    """All at once: one slow master delays the answer, but does not stop it."""
    return list(await asyncio.gather(*(view_queue(backend, row) for row in rows)))


async def count_of(backend: ManagementBackend, pid: Pid) -> Operations | None:
    """What a queue process has done; None if it does not say."""
    try:
        answer = await backend.runtime.call(pid, CountOperations(), timeout_ms=STAT_TIMEOUT_MS)
    except ProcessError:
        return None
    return answer if isinstance(answer, Operations) else None


def view_operations(backend: ManagementBackend, pid: Pid, told: Operations) -> dict[str, object]:
    """As RabbitMQ: no ``message_stats`` before anything was done, ``sync_messages`` of a master
    that synchronises. How many there are to send is our own."""
    shown: dict[str, object] = {"message_bytes": told.message_bytes}
    now_ns = backend.env.clock.monotonic_ns()
    stats = backend.rates.message_stats(str(pid), told.counts, now_ns)
    if any(told.counts.values()):
        shown["message_stats"] = stats
    if told.sync_messages is not None:
        shown["sync_messages"] = told.sync_messages
        shown["sync_messages_total"] = told.sync_total
    return shown


async def view_queue(backend: ManagementBackend, row: QueueRow) -> dict[str, object]:
    """Message counts are absent if the master can't be asked; ``state`` then says why."""
    shown: dict[str, object] = {
        "name": row.name,
        "vhost": row.vhost,
        "type": "classic",
        "durable": row.durable,
        "auto_delete": row.auto_delete,
        "exclusive": row.exclusive_owner is not None,
        "arguments": row.arguments,
        "node": "" if row.pid is None else row.pid.node,
        "slave_nodes": [pid.node for pid in row.slave_pids],
        "synchronised_slave_nodes": [pid.node for pid in row.sync_slave_pids],
        "pid": None if row.pid is None else str(row.pid),
        "slave_pids": list(map(str, row.slave_pids)),
        "sync_slave_pids": list(map(str, row.sync_slave_pids)),
        "gm_pids": list(map(str, row.gm_pids)),
        "recoverable_slaves": list(row.recoverable_slaves),
        "policy": row.policy,
        "operator_policy": in_force(backend.metadata, row.vhost, row.name).operator_policy,
        "effective_policy_definition": row.definition,
    }
    if (state := recorded_state(backend, row)) is not None:
        return {**shown, "state": state}
    if row.pid is None or not is_live(backend, row):
        return {**shown, "state": "down"}
    try:
        answer, counted = await asyncio.gather(
            backend.runtime.call(row.pid, Inspect(), timeout_ms=STAT_TIMEOUT_MS),
            count_of(backend, row.pid),
        )
    except CallTimeout:
        return {**shown, "state": "unresponsive"}
    except ProcessError:
        return {**shown, "state": "down"}
    if not isinstance(answer, Stats):
        return {**shown, "state": "unresponsive"}
    return {
        **shown,
        "state": answer.state,
        "messages": answer.ready + answer.unacknowledged,
        "messages_ready": answer.ready,
        "messages_unacknowledged": answer.unacknowledged,
        "consumers": answer.consumers,
        **answer.detail,
        **({} if counted is None else view_operations(backend, row.pid, counted)),
    }
