"""Users of the API: their passwords, their tags, and what each may see and do."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest

from shalott.broker.base.http_api import Request
from shalott.broker.rabbit.management.api import respond
from shalott.broker.rabbit.metadata import users
from shalott.broker.rabbit.metadata.records import UserRow
from tests.world.rabbit.asking import GUEST, ask, get, on_node, reason
from tests.world.rabbit.management_node import FakeNode

pytestmark = pytest.mark.unit


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


async def add(node: FakeNode, name: str, tags: str, vhosts: tuple[str, ...] = ("/",)) -> str:
    """What the user sends along."""
    body = {"password": "p", "tags": tags}
    assert (await ask(node, "PUT", f"/api/users/{name}", body)).status == 201
    for vhost in vhosts:
        path = f"/api/permissions/{vhost.replace('/', '%2F')}/{name}"
        rights = {"configure": "^own", "write": "^own", "read": ".*"}
        assert (await ask(node, "PUT", path, rights)).status == 201
    return basic(name, "p")


def test_a_hash_is_rabbitmqs() -> None:
    """Salted with its own first four bytes; this one is of RabbitMQ 3.10.8."""
    stored = "PxjHynWfTBlPO7KcvCbUjdtQN5/JvgYcABIR7S9JqT1En2HU"
    row = UserRow(name="u1", password_hash=stored)
    assert users.fits(row, "p1")
    assert not users.fits(row, "p2")
    assert not users.fits(row, "")
    salt = bytes([1, 2, 3, 4])
    expected = base64.b64encode(salt + hashlib.sha512(salt + b"x").digest()).decode()
    assert users.hash_password("x", salt, "rabbit_password_hashing_sha512") == expected
    assert not users.fits(UserRow(name="u", password_hash=""), "")
    assert not users.fits(UserRow(name="u", password_hash="%"), "x")


def test_users_come_change_and_go() -> None:
    async def body(node: FakeNode) -> None:
        for given, text in (
            ({"password": "x"}, "tags_not_present"),
            ({"tags": "", "password": "x", "password_hash": "eA=="}, "both_password"),
            ({"tags": "", "password_hash": "%"}, "password_hash_is_not_base64"),
            ({"tags": "", "hashing_algorithm": "rot13"}, "unknown hashing_algorithm"),
        ):
            response = await ask(node, "PUT", "/api/users/al", given)
            assert (response.status, text in reason(response)) == (400, True)
        al = await add(node, "al", "monitoring, policymaker", ())
        shown = await get(node, "/api/users/al")
        assert (shown["tags"], shown["limits"]) == (["monitoring", "policymaker"], {})
        assert len(base64.b64decode(shown["password_hash"])) == 36
        assert json.loads((await ask(node, "GET", "/api/whoami", authorization=al)).body) == {
            "name": "al",
            "tags": ["monitoring", "policymaker"],
        }
        assert [u["name"] for u in await get(node, "/api/users/without-permissions")] == ["al"]
        # As exported, it lets the same password in.
        exported = {key: shown[key] for key in ("password_hash", "hashing_algorithm", "tags")}
        assert (await ask(node, "PUT", "/api/users/bo", exported)).status == 201
        bo = basic("bo", "p")
        assert (await ask(node, "GET", "/api/whoami", authorization=bo)).status == 200
        limit = await ask(node, "PUT", "/api/user-limits/bo/max-channels", {"value": "3"})
        assert limit.status == 204
        expected = [{"user": "bo", "value": {"max-channels": 3}}]
        assert await get(node, "/api/user-limits") == expected
        assert (await ask(node, "PUT", "/api/users/bo", {"tags": "management"})).status == 204
        assert (await ask(node, "GET", "/api/whoami", authorization=bo)).status == 401
        assert await get(node, "/api/user-limits/bo") == expected
        assert (await ask(node, "DELETE", "/api/user-limits/bo/max-channels")).status == 204
        assert await get(node, "/api/user-limits/bo") == []
        assert (await ask(node, "PUT", "/api/user-limits/bo/most", {"value": 1})).status == 400
        assert (await ask(node, "PUT", "/api/user-limits/cy/max-channels", {})).status == 404
        both = {"users": ["al", "bo", "cy"]}
        assert (await ask(node, "POST", "/api/users/bulk-delete", both)).status == 204
        assert [user["name"] for user in await get(node, "/api/users")] == ["guest"]

    on_node(body)


def test_the_configurations_user_can_be_changed_and_deleted() -> None:
    async def body(node: FakeNode) -> None:
        root = await add(node, "root", "administrator", ())
        assert (await ask(node, "PUT", "/api/users/guest", {"tags": "", "password": "n"})).status
        assert (await ask(node, "GET", "/api/whoami")).status == 401
        assert reason(await ask(node, "GET", "/api/whoami", authorization=basic("guest", "n"))) == (
            "Not management user"
        )
        path = "/api/permissions/%2F/guest"
        assert (await ask(node, "GET", path, authorization=root)).status == 200
        assert (await ask(node, "DELETE", "/api/users/guest", authorization=root)).status == 204
        assert (await ask(node, "GET", path, authorization=root)).status == 404
        assert (await ask(node, "DELETE", "/api/users/guest", authorization=root)).status == 404
        tagged = {"tags": "administrator", "password": "guest"}
        again = await ask(node, "PUT", "/api/users/guest", tagged, authorization=root)
        assert again.status == 201
        assert (await ask(node, "GET", path)).status == 404  # a new user may do nothing

    on_node(body)


@pytest.mark.parametrize(
    ("tags", "method", "path", "refusal"),
    [
        ("management", "GET", "/api/users", "Not administrator user"),
        ("management", "GET", "/api/nodes", "Not monitoring user"),
        ("management", "PUT", "/api/policies/%2F/p", "Not policymaker user"),
        ("policymaker", "PUT", "/api/operator-policies/%2F/p", "Not administrator user"),
        ("monitoring", "PUT", "/api/vhosts/v2", "Not administrator user"),
        ("monitoring", "GET", "/api/definitions", "Not administrator user"),
        ("monitoring", "GET", "/api/vhosts/v1/permissions", "Not administrator user"),
        ("monitoring", "POST", "/api/shalott/app", "Not administrator user"),
        ("management", "GET", "/api/queues/v1", "User not authorised to access virtual host"),
        ("monitoring", "PUT", "/api/queues/v1/q", "User not authorised to access virtual host"),
        ("administrator", "PUT", "/api/queues/v1/q", "User not authorised to access virtual host"),
        ("management", "PUT", "/api/queues/%2F/q", "access to queue 'q' in vhost '/' refused"),
        ("management", "PUT", "/api/exchanges/%2F/e", "access to exchange 'e' in vhost '/'"),
    ],
)
def test_a_tag_allows_what_rabbitmqs_does(tags: str, method: str, path: str, refusal: str) -> None:
    async def body(node: FakeNode) -> None:
        await ask(node, "PUT", "/api/vhosts/v1")
        user = await add(node, "al", tags)
        sent = {} if method in ("PUT", "POST") else None
        response = await ask(node, method, path, sent, authorization=user)
        assert response.status == 401
        assert reason(response).startswith(refusal)

    on_node(body)


def test_each_sees_its_own() -> None:
    async def body(node: FakeNode) -> None:
        await ask(node, "PUT", "/api/vhosts/v1")
        user = await add(node, "al", "management", ("v1",))
        seen = await ask(node, "GET", "/api/vhosts", authorization=user)
        assert [each["name"] for each in json.loads(seen.body)] == ["v1"]
        seen = await ask(node, "GET", "/api/exchanges", authorization=user)
        assert {each["vhost"] for each in json.loads(seen.body)} == {"v1"}
        assert {each["vhost"] for each in await get(node, "/api/exchanges")} == {"/", "v1"}

    on_node(body)


def test_the_cookie_is_an_administrators() -> None:
    async def body(node: FakeNode) -> None:
        cookie = f"Cookie {node.config.cookie}"
        shown = await ask(node, "GET", "/api/whoami", authorization=cookie)
        assert json.loads(shown.body) == {"name": "rmq-cli", "tags": ["administrator"]}
        await ask(node, "PUT", "/api/vhosts/v1")
        made = await ask(node, "PUT", "/api/queues/v1/q", {}, authorization=cookie)
        assert made.status == 201
        other = await ask(node, "GET", "/api/whoami", authorization=f"{cookie}x")
        assert other.status == 401

    on_node(body)


def test_guest_comes_from_its_own_machine_only() -> None:
    async def body(node: FakeNode) -> None:
        own = await add(node, "al", "administrator")
        for peer, user, status in (
            ("127.0.0.1", GUEST, 200),
            ("::1", GUEST, 200),
            ("::ffff:127.0.0.1", GUEST, 200),
            ("10.0.0.9", GUEST, 401),
            ("10.0.0.9", own, 200),
            ("10.0.0.9", f"Cookie {node.config.cookie}", 200),
        ):
            request = Request("GET", ("api", "whoami"), headers={"authorization": user}, peer=peer)
            assert (await respond(node, request)).status == status, (peer, user)

    on_node(body)


def test_topic_permissions() -> None:
    async def body(node: FakeNode) -> None:
        path = "/api/topic-permissions/%2F/guest"
        one = {"exchange": "amq.topic", "write": "^a", "read": "b"}
        assert (await ask(node, "PUT", path, one)).status == 201
        assert (await ask(node, "PUT", path, {**one, "write": "^c"})).status == 204
        assert (await ask(node, "PUT", path, {**one, "exchange": "t"})).status == 201
        first, second = await get(node, "/api/topic-permissions")
        assert first == {"user": "guest", "vhost": "/", **one, "write": "^c"}
        assert second["exchange"] == "t"
        assert len(await get(node, "/api/vhosts/%2F/topic-permissions")) == 2
        assert len(await get(node, "/api/users/guest/topic-permissions")) == 2
        assert (await ask(node, "PUT", path, {**one, "read": "["})).status == 400
        stranger = "/api/topic-permissions/%2F/cy"
        assert reason(await ask(node, "PUT", stranger, one)) == "vhost_or_user_not_found"
        assert (await ask(node, "DELETE", f"{path}?exchange=t")).status == 204
        assert len(await get(node, path)) == 1
        assert (await ask(node, "DELETE", path)).status == 204
        assert (await ask(node, "GET", path)).status == 404

    on_node(body)
