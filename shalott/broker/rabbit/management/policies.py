"""/api/policies lists, shows, sets and clears policies, /api/operator-policies those of operators.

A change reaches the queues through the metadata tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from shalott.broker.base.http_api import (
    Request,
    Response,
    bad_request,
    decode_body,
    is_true,
    json_response,
    not_found,
)
from shalott.broker.rabbit.management.backend import (
    ManagementBackend,
    Route,
    require_vhost,
    running_queues,
)
from shalott.broker.rabbit.management.bodies import Number, number
from shalott.broker.rabbit.metadata.api import Transaction
from shalott.broker.rabbit.metadata.policies import OPERATOR_POLICY, POLICY, policy_rows
from shalott.broker.rabbit.metadata.records import PolicyRow, policy_key
from shalott.broker.rabbit.mirrored.policy import normalise, validate, validate_operators


class PolicyBody(msgspec.Struct, kw_only=True, rename={"apply_to": "apply-to"}):
    """What PUT takes. Unknown keys (RabbitMQ's tools send vhost and name along) are ignored."""

    pattern: str
    definition: dict[str, object]
    priority: Number = 0
    apply_to: Literal["all", "queues", "exchanges"] = "all"


def view_policy(row: PolicyRow) -> dict[str, object]:
    return {
        "vhost": row.vhost,
        "name": row.name,
        "pattern": row.pattern,
        "apply-to": row.apply_to,
        "definition": row.definition,
        "priority": row.priority,
    }


@dataclass(frozen=True, slots=True)
class PolicyApi:
    """The same requests for one table of policies. ``validate`` says what is wrong with one."""

    table: str
    validate: Callable[[PolicyRow], str | None]

    async def list_all(
        self, backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
    ) -> Response:
        vhost = parameters.get("vhost")
        if vhost is not None:
            require_vhost(backend, vhost)
        rows = policy_rows(backend.metadata, self.table)
        return json_response([view_policy(row) for row in rows if vhost in (None, row.vhost)])

    async def show(
        self, backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
    ) -> Response:
        """As this node has it. With consistent=true in the query (our own) the tables' leader
        confirms it: 503 while it can't.
        """
        key = policy_key(parameters["vhost"], parameters["name"])
        if is_true(request, "consistent"):
            running_queues(backend)
            row = await backend.metadata.transact(
                lambda tx: tx.read(self.table, key), confirmed=True
            )
        else:
            row = backend.metadata.read(self.table, key)
        if not isinstance(row, PolicyRow):
            raise not_found()
        return json_response(view_policy(row))

    async def put(
        self, backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
    ) -> Response:
        """201 if it is new, 204 if it replaces one."""
        running_queues(backend)
        require_vhost(backend, parameters["vhost"])
        body = decode_body(request, PolicyBody)
        row = PolicyRow(
            vhost=parameters["vhost"],
            name=parameters["name"],
            pattern=body.pattern,
            definition=normalise(body.definition),
            priority=number(body.priority),
            apply_to=body.apply_to,
        )
        problem = self.validate(row)
        if problem is not None:
            raise bad_request(problem)
        key = policy_key(row.vhost, row.name)

        def store(tx: Transaction) -> bool:
            is_new = tx.read(self.table, key) is None
            tx.write(self.table, key, row)
            return is_new

        return Response(201 if await backend.metadata.transact(store, once=True) else 204)

    async def delete(
        self, backend: ManagementBackend, request: Request, parameters: Mapping[str, str]
    ) -> Response:
        """404 if this node knows none: then nothing was done. 204 once there is none any more,
        even if another request deleted it: what a lost answer was about is not told apart.
        """
        running_queues(backend)
        key = policy_key(parameters["vhost"], parameters["name"])
        if backend.metadata.read(self.table, key) is None:
            raise not_found()

        def clear(tx: Transaction) -> None:
            if tx.read(self.table, key) is not None:
                tx.delete(self.table, key)

        await backend.metadata.transact(clear, confirmed=True, once=True)
        return Response(204)

    def routes(self, path: str) -> tuple[Route, ...]:
        one = f"{path}/:vhost/:name"
        return (
            Route("GET", path, self.list_all),
            Route("GET", f"{path}/:vhost", self.list_all),
            Route("GET", one, self.show),
            Route("PUT", one, self.put),
            Route("DELETE", one, self.delete),
        )


OWN = PolicyApi(POLICY, validate)
OPERATORS = PolicyApi(OPERATOR_POLICY, validate_operators)
ROUTES: tuple[Route, ...] = (
    *OWN.routes("/api/policies"),
    *OPERATORS.routes("/api/operator-policies"),
)
