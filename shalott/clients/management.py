"""A client of named metadata objects over the management API: policies and queues as registers.

An object is a register that holds nothing while it does not exist. Writing a value to a policy
stores a definition that carries it; writing to a queue declares it (its value is always 1); writing
nothing deletes. Keys name the kind: ``policy/NAME``, ``queue/NAME``.

Write:

    ok      201 or 204
    fail    4xx (a delete of what the node does not know is 404); the broker on the node does not
            run; nothing was sent
    info    any other answer, no answer in time, a connection that ended

Read:

    ok      200 with the value, 404 with nothing
    fail    everything else: a read changes nothing, so it certainly did not

With ``leader_reads`` the leader of the tables confirms what a read says (consistent=true in the
query, our broker only); without, the node answers from its own tables, as RabbitMQ does.
"""

from __future__ import annotations

from urllib.parse import quote

from shalott.cluster.http import Management, Response
from shalott.cluster.nodes import Endpoint
from shalott.core.errors import ClientError, Definite, Indefinite, Unreachable
from shalott.core.op import Completion, Invocation

POLICY, QUEUE = "policy", "queue"
ABSENT = "absent"
CORRUPTED = "corrupted"
QUEUE_VALUE = 1
_NOT_RUNNING = "the broker on this node is "  # our broker's reason when it refuses beforehand
_PATTERN = "^shalott-matches-nothing$"
_SETTING = "max-length"  # any setting that takes a number


class ManagementClient:
    """Serves read and write on one node. A request has a connection of its own."""

    def __init__(
        self, host: str, port: int, *, op_timeout_ms: int = 5000, leader_reads: bool = False
    ) -> None:
        self._api = Management(Endpoint(host, port), timeout_ms=op_timeout_ms)
        self._query = "?consistent=true" if leader_reads else ""

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def invoke(self, invocation: Invocation) -> Completion:
        if invocation.f == "read":
            return await self._read(invocation.key)
        if invocation.f == "write":
            return await self._write(invocation.key, invocation.value)
        raise Definite(f"a client of metadata knows no {invocation.f}")

    async def _read(self, key: str) -> Completion:
        try:
            response = await self._ask("GET", f"{path_of(key)}{self._query}")
            if response.status == 404:
                return Completion(type="ok")
            if response.status != 200:
                raise Definite(_said(response))
            value = _value_in(key, response.json())
        except Unreachable:
            raise
        except ClientError as error:
            raise Definite(str(error)) from error
        if value is None:
            return Completion(type="ok", error=CORRUPTED)
        return Completion(type="ok", value=value)

    async def _write(self, key: str, value: int | None) -> Completion:
        path = path_of(key)
        if value is None:
            response = await self._ask("DELETE", path)
        else:
            response = await self._ask("PUT", path, _body_of(key, value))
        if response.status < 300:
            return Completion(type="ok", value=value)
        if response.status == 404 and value is None:
            return Completion(type="fail", error=ABSENT)
        said = _said(response)
        if 400 <= response.status < 500 or _NOT_RUNNING in said:
            raise Definite(said)
        raise Indefinite(said)

    async def _ask(self, method: str, path: str, body: object = None) -> Response:
        try:
            return await self._api.request(method, path, body)
        except Definite as error:
            raise Unreachable(str(error)) from error  # it was never sent


def path_of(key: str) -> str:
    """The object's place in the API, in the default virtual host."""
    kind, _, name = key.partition("/")
    collection = {POLICY: "policies", QUEUE: "queues"}[kind]
    return f"/api/{collection}/%2F/{quote(name, safe='')}"


def _body_of(key: str, value: int) -> dict[str, object]:
    if key.startswith(QUEUE):
        return {"durable": True, "auto_delete": False, "arguments": {}}
    return {"pattern": _PATTERN, "definition": {_SETTING: value}, "apply-to": "queues"}


def _value_in(key: str, shown: object) -> int | None:
    """None if it is none of ours."""
    if key.startswith(QUEUE):
        return QUEUE_VALUE
    definition = shown.get("definition") if isinstance(shown, dict) else None
    value = definition.get(_SETTING) if isinstance(definition, dict) else None
    return value if isinstance(value, int) else None


def _said(response: Response) -> str:
    text = response.body[:200].decode(errors="replace").strip()
    return f"{response.status}: {text}"
