"""A queue's ring and every node's view of the cluster, told by whole nodes in virtual time: while
messages go round, while a node is cut off, and after nodes have run apart."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shalott.broker.base.http_api import Request
from shalott.broker.base.http_server import ManagementServer
from shalott.broker.rabbit.management.api import respond
from shalott.broker.rabbit.management.views import in_flight, rings
from tests.world.rabbit.management_node import FakeNode
from tests.world.rabbit.whole_nodes import WholeNodes, with_nodes

pytestmark = pytest.mark.unit

RING = "/api/shalott/queues/%2F/q/ring"
ALL = {"pattern": "^", "definition": {"ha-mode": "all", "ha-sync-mode": "automatic"}}
LONG_TICK_MS = 60_000  # a node that is cut off is not missed for a minute


async def mirrored(cluster: WholeNodes) -> None:
    """Queue q with its master on n1 and two synchronised mirrors in its ring."""
    assert (await cluster.ask("n1", "PUT", "/api/policies/%2F/ha", ALL)).status == 201
    queue = {"durable": True}
    assert (await cluster.ask("n1", "PUT", "/api/queues/%2F/q", queue)).status == 201

    async def is_whole() -> bool:
        shown = await cluster.get("n1", "/api/queues/%2F/q")
        told = await cluster.get("n1", RING)
        ready = [each["member"] and each["member"].get("ready") for each in told["nodes"]]
        return len(shown["synchronised_slave_nodes"]) == 2 and ready == [True] * 3

    await cluster.until(is_whole)
    await cluster.until(lambda: is_settled(cluster, "n1"))


async def is_settled(cluster: WholeNodes, name: str) -> bool:
    told = await cluster.get(name, RING)
    return not any(ring["in_flight"] for ring in told["rings"])


def members(told: Any) -> dict[str, Any]:
    return {each["node"]: each["member"] for each in told["nodes"] if each["reachable"]}


def last(member: Any, publisher: str) -> tuple[int, int]:
    (found,) = [each for each in member["publishers"] if each["id"] == publisher]
    return found["last_pub"], found["last_ack"]


def test_members_are_told_with_their_neighbours_whichever_node_is_asked() -> None:
    async def body(cluster: WholeNodes) -> None:
        await mirrored(cluster)
        await cluster.publish("n1", "q", b"one", b"two")

        async def is_told() -> bool:
            shown = await cluster.get("n1", "/api/queues/%2F/q")
            return bool(shown["messages"] == 2) and await is_settled(cluster, "n1")

        await cluster.until(is_told)
        for name in cluster.names:
            told = await cluster.get(name, RING)
            assert (told["asked"], told["queue"], told["vhost"]) == (name, "q", "/")
            by_node = members(told)
            assert [by_node[each]["role"] for each in cluster.names] == ["master", *["mirror"] * 2]
            (ring,) = told["rings"]
            order = ring["members"]
            assert order[0] == by_node["n1"]["id"]
            by_id = {member["id"]: member for member in by_node.values()}
            for at, member in enumerate(order):
                assert by_id[member]["right"] == order[(at + 1) % 3]
                assert by_id[member]["left"] == order[at - 1]
            # The same numbers at all three, and all that was published is acknowledged.
            numbers = [last(member, order[0]) for member in by_node.values()]
            assert numbers == [numbers[0]] * 3
            assert numbers[0][0] == numbers[0][1] >= 1

    with_nodes(body)


def test_what_does_not_get_on_is_seen_where_it_is() -> None:
    """The documents' table: message and id, and what each member keeps."""

    async def body(cluster: WholeNodes) -> None:
        await mirrored(cluster)
        before = await cluster.get("n1", RING)
        (ring,) = before["rings"]
        order = ring["members"]
        nodes = {member["id"]: node for node, member in members(before).items()}
        stuck_at = nodes[order[2]]  # the master's left neighbour: the last on the way round
        number = last(members(before)["n1"], order[0])[0]
        cluster.isolate(stuck_at)
        await cluster.publish("n1", "q", b"test")

        async def has_passed_the_second() -> bool:
            told = await cluster.get("n1", RING)
            flights = [flight for ring in told["rings"] for flight in ring["in_flight"]]
            return [flight["passed"] for flight in flights] == [order[:2]]

        await cluster.until(has_passed_the_second)
        told = await cluster.get("n1", RING)
        (flight,) = told["rings"][0]["in_flight"]
        assert flight["publisher"] == order[0]
        assert (flight["number"], flight["kind"], flight["text"]) == (
            number + 1,
            "Published",
            "test",
        )
        assert (flight["phase"], flight["held_by"]) == ("pub", sorted(order[:2]))
        for member in members(told).values():
            assert last(member, order[0]) == (number + 1, number)
        (silent,) = [each for each in told["nodes"] if not each["reachable"]]
        assert (silent["node"], silent["reason"]) == (stuck_at, "no answer in 2000 ms")
        cluster.network.heal()
        await cluster.until(lambda: is_settled(cluster, "n1"))
        (member,) = [each for each in members(await cluster.get("n1", RING)).values()
                     if each["id"] == order[2]]  # fmt: skip
        assert last(member, order[0]) == (number + 1, number + 1)

    with_nodes(body, net_tick_ms=LONG_TICK_MS)


def test_a_partition_is_told_by_both_of_its_sides() -> None:
    async def body(cluster: WholeNodes) -> None:
        await mirrored(cluster)
        cluster.isolate("n3")

        async def have_parted() -> bool:
            found = [(await cluster.get(name, "/api/shalott/claims"))["running_nodes"]
                     for name in cluster.names]  # fmt: skip
            return found == [["n1", "n2"], ["n1", "n2"], ["n3"]]

        await cluster.until(have_parted)
        views = {each["node"]: each for each in await views_of(cluster, "n1")}
        assert [views[name]["reachable"] for name in cluster.names] == [True, True, False]
        assert views["n3"]["reason"] == "n3 is not linked to n1"
        assert [each["reachable"] for each in await views_of(cluster, "n3")] == [False, False, True]
        await cluster.publish("n1", "q", b"left")
        cluster.network.heal()

        async def have_met() -> bool:
            return all(
                each["reachable"] and each["partitions"] for each in await views_of(cluster, "n1")
            )

        await cluster.until(have_met)
        views = {each["node"]: each for each in await views_of(cluster, "n1")}
        assert views["n1"]["partitions"] == ["n3"]
        assert views["n3"]["partitions"] == ["n1", "n2"]
        assert views["n3"]["running_nodes"] == ["n3"]
        assert views["n3"]["linked"] == ["n1", "n2"]
        claims = {name: view["claims"][0] for name, view in views.items()}
        assert [claims[name]["role"] for name in cluster.names] == ["master", "mirror", "master"]
        assert [claims[name]["messages"] for name in cluster.names] == [1, 1, 0]
        assert views["n1"]["message_bytes"] == len(b"left")
        assert views["n1"]["self"]["status"] == "running"
        told = await cluster.get("n1", RING)
        found = [[name_of(told, each) for each in ring["members"]] for ring in told["rings"]]
        assert sorted(map(sorted, found)) == [["n1", "n2"], ["n3"]]

    with_nodes(body, net_tick_ms=1000)


async def views_of(cluster: WholeNodes, name: str) -> Any:
    return (await cluster.get(name, "/api/shalott/views"))["views"]


def name_of(told: Any, member: str) -> str:
    (found,) = [each["node"] for each in told["nodes"]
                if each.get("member") and each["member"]["id"] == member]  # fmt: skip
    return str(found)


def test_a_queue_without_mirrors_and_one_that_is_not_there() -> None:
    async def body(cluster: WholeNodes) -> None:
        assert (await cluster.ask("n1", "GET", RING)).status == 404
        assert (await cluster.ask("n1", "PUT", "/api/queues/%2F/q", {})).status == 201
        told = await cluster.get("n1", RING)
        assert told["rings"] == []
        assert told["nodes"][0]["member"] == {"id": None, "role": "master", "state": "running"}

    with_nodes(body, ("n1",))


def test_counts_and_rates_are_of_what_was_done_since_somebody_asked() -> None:
    async def body(cluster: WholeNodes) -> None:
        await mirrored(cluster)
        assert "message_stats" not in await cluster.get("n1", "/api/queues/%2F/q")
        asked_ns = cluster.loop.now_ns
        await cluster.publish("n1", "q", *[b"x"] * 50)

        async def a_while_passed() -> bool:
            return cluster.loop.now_ns - asked_ns >= 5_000_000_000

        await cluster.until(a_while_passed)
        stats = (await cluster.get("n1", "/api/queues/%2F/q"))["message_stats"]
        assert (stats["publish"], stats["ack"]) == (50, 0)
        assert stats["publish_details"]["rate"] == pytest.approx(10, abs=0.5)
        summed = (await cluster.get("n1", "/api/overview"))["message_stats"]
        assert summed["publish"] == 50

    with_nodes(body)


def test_a_synchronisations_progress_is_told() -> None:
    async def body(cluster: WholeNodes) -> None:
        assert (
            await cluster.ask("n1", "PUT", "/api/queues/%2F/q", {"durable": True})
        ).status == 201
        await cluster.publish("n1", "q", *[b"x"] * 100)
        by_hand = {"pattern": "^", "definition": {"ha-mode": "all", "ha-sync-mode": "manual"}}
        assert (await cluster.ask("n1", "PUT", "/api/policies/%2F/ha", by_hand)).status == 201

        async def queue() -> Any:
            return await cluster.get("n2", "/api/queues/%2F/q")

        async def has_mirrors() -> bool:
            shown = await queue()
            found = len(shown["slave_nodes"]), shown["synchronised_slave_nodes"]
            return found == (2, []) and shown["messages"] == 100

        await cluster.until(has_mirrors)
        assert "sync_messages" not in await queue()
        actions = "/api/queues/%2F/q/actions"
        assert (await cluster.ask("n1", "POST", actions, {"action": "sync"})).status == 204

        async def is_half_way() -> bool:
            shown = await queue()
            return "sync_messages" in shown and 0 < shown["sync_messages"] < 100

        await cluster.until(is_half_way)
        shown = await queue()
        assert (shown["state"], shown["sync_messages_total"]) == ("syncing", 100)

        async def is_done() -> bool:
            shown = await queue()
            return "sync_messages" not in shown and len(shown["synchronised_slave_nodes"]) == 2

        await cluster.until(is_done)
        assert (await queue())["state"] == "running"

    with_nodes(body, sync_batch_size=1)


# -- where a message is, by who still has it -------------------------------------------------------

RING_OF_FOUR = ["A", "B", "C", "D"]


def told_by(name: str, *pending: int, publisher: str = "A", aliases: tuple[str, ...] = ()) -> Any:
    pubs = [{"number": each, "kind": "Published", "bytes": 4, "text": "test"} for each in pending]
    return {
        "id": name,
        "role": "master" if name == "A" else "mirror",
        "version": 4,
        "aliases": list(aliases),
        "view": [{"id": each} for each in RING_OF_FOUR],
        "publishers": [{"id": publisher, "pending_ack": pubs}],
    }


def test_a_pub_has_passed_those_who_have_it() -> None:
    told = [told_by("A", 1), told_by("B", 1), told_by("C"), told_by("D")]
    (flight,) = in_flight(RING_OF_FOUR, told)
    assert (flight["phase"], flight["passed"]) == ("pub", ["A", "B"])


def test_an_ack_has_passed_those_who_have_forgotten() -> None:
    told = [told_by("A"), told_by("B"), told_by("C", 1), told_by("D", 1)]
    (flight,) = in_flight(RING_OF_FOUR, told)
    assert (flight["phase"], flight["passed"]) == ("ack", ["A", "B"])


def test_a_dead_publishers_message_begins_at_who_stands_in_for_it() -> None:
    told = [
        told_by("A", 1, publisher="X"),
        told_by("B", publisher="X"),
        told_by("C", 1, publisher="X", aliases=("X",)),
        told_by("D", 1, publisher="X"),
    ]
    (flight,) = in_flight(RING_OF_FOUR, told)
    assert (flight["phase"], flight["passed"]) == ("pub", ["C", "D", "A"])


def test_rings_begin_at_the_master() -> None:
    told = [told_by(name) for name in "CABD"]
    assert rings(told) == [RING_OF_FOUR]
    assert rings([]) == []


# -- the page's files ------------------------------------------------------------------------------


def test_the_page_is_served_to_anybody_and_lets_nothing_in() -> None:
    import asyncio

    async def body() -> None:
        node = FakeNode()
        for path, kind in (
            (("",), "text/html"),
            (("page", "style.css"), "text/css"),
            (("page", "app.js"), "text/javascript"),
        ):
            response = await respond(node, Request("GET", path))
            assert response.status == 200
            assert response.headers["Content-Type"].startswith(kind)
            policy = response.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self';")
            assert "unsafe" not in policy
        for path in (("page", "..", "api.py"), ("page", "../api.py"), ("page", "none.js")):
            assert (await respond(node, Request("GET", path))).status == 401
        assert (await respond(node, Request("POST", ("",)))).status == 401
        server = ManagementServer(lambda request: respond(node, request), host="127.0.0.1", port=0)
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: n1\r\nConnection: close\r\n\r\n")
        answer = (await reader.read()).decode()
        head = answer.partition("\r\n\r\n")[0].lower()
        assert head.count("content-type:") == 1
        assert "content-type: text/html" in head
        assert "content-security-policy: default-src 'none'" in head
        writer.close()
        await server.stop()

    asyncio.run(body())


def test_users_are_those_of_the_configuration() -> None:
    async def body(cluster: WholeNodes) -> None:
        (guest,) = await cluster.get("n1", "/api/users")
        assert (guest["name"], guest["tags"]) == ("guest", ["administrator"])
        assert await cluster.get("n1", "/api/users/guest") == guest
        assert (await cluster.ask("n1", "GET", "/api/users/nobody")).status == 404
        response = await cluster.ask("n1", "GET", "/api/whoami")
        assert json.loads(response.body)["name"] == "guest"

    with_nodes(body, ("n1",))
