"""Filters by SQL92: what they want, and what they can't be asked for."""

from __future__ import annotations

import msgspec
import pytest

from shalott.broker.rocket.processor.sql_filter import BadExpression, parse
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode
from tests.world.rocket.broker import World, in_world, messages_of

pytestmark = pytest.mark.unit

MESSAGE = {"a": "3", "name": "lily", "yes": "true", "dotted.key": "x", "said": "it's"}
WANTED = (
    *("a = 3", "a <> 4", "a > 2.5", "a >= 3", "a < 1e3", "a <= 3", "a = -3 OR a = 3"),
    *("a BETWEEN 3 AND 5", "a NOT BETWEEN 4 AND 5", "a IN (1, 3)", "name IN ('x', 'lily')"),
    *("name NOT IN ('x')", "none IS NULL", "a IS NOT NULL", "yes = TRUE", "yes", "NOT (a = 4)"),
    *("a = 4 OR name = 'lily' AND a = 3", "not a = 4 and a is not null", "dotted.key = 'x'"),
    *("name CONTAINS 'il'", "name STARTSWITH 'li'", "name NOT ENDSWITH 'li'", "TRUE OR none = 1"),
    *("a = '3'", "said = 'it''s'"),
)
UNWANTED = (
    *("a = 4", "a <> 3", "none = 1", "none <> 1", "NOT (none = 1)", "name > 1", "NOT (name > 1)"),
    "NOT (name = 1)",
    *("none IS NOT NULL", "a NOT IN (3)", "none NOT IN (3)", "FALSE", "none", "a = 3 AND none = 1"),
    *("(a = 4 OR name = 'lily') AND a = 5", "name CONTAINS ''", "none CONTAINS 'a'", "a"),
)
BAD = (
    *("", "a =", "a = = 3", "(a = 3", "a = 3)", "a BETWEEN 3", "a IN ()", "a IN (3", "a ~ 3"),
    *("a NOT 3", "'open", "a = -x", "IS NULL", "AND", "a b", "(" * 70 + "a" + ")" * 70),
    "a OR " * 300 + "a",
)


@pytest.mark.parametrize("text", WANTED)
def test_it_is_wanted(text: str) -> None:
    assert parse(text)(MESSAGE) is True


@pytest.mark.parametrize("text", UNWANTED)
def test_it_is_not_wanted(text: str) -> None:
    assert parse(text)(MESSAGE) is not True


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_filter_is_refused(text: str) -> None:
    with pytest.raises(BadExpression):
        parse(text)


async def check(world: World, text: str, kind: str = "SQL92") -> Command:
    data = {"topic": "t", "subString": text, "expressionType": kind}
    body = msgspec.json.encode({"clientId": "c", "group": "g", "subscriptionData": data})
    return await world.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)


def test_a_pull_gets_what_its_filter_wants() -> None:
    async def body(world: World) -> None:
        for number in range(4):
            await world.send(b"%d" % number, properties=f"a\x01{number}\x02")
        await world.settle()
        more = {"expressionType": "SQL92", "subscription": "a > 1"}
        got = await world.pull(**more)
        assert [one.message.body for one in messages_of(got.body)] == [b"2", b"3"]
        nothing = await world.pull(**(more | {"subscription": "a > 9"}))
        assert nothing.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert nothing.ext["nextBeginOffset"] == "4"
        bad = await world.pull(**(more | {"subscription": "a >"}))
        assert bad.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED

    in_world(body)


def test_a_pull_without_a_filter_goes_by_its_groups_heartbeats() -> None:
    async def body(world: World) -> None:
        for number in range(4):
            await world.send(b"%d" % number, properties=f"a\x01{number}\x02")
        await world.settle()
        more = {"expressionType": "SQL92", "sysFlag": 0, "subscription": ""}
        assert (await world.pull(**more)).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        wanted = {"topic": "t", "subString": "a = 1", "expressionType": "SQL92"}
        consumer = {"groupName": "g", "subscriptionDataSet": [wanted]}
        beat = msgspec.json.encode({"clientID": "c", "consumerDataSet": [consumer]})
        await world.ask(RequestCode.HEART_BEAT, body=beat)
        got = await world.pull(**more)
        assert [one.message.body for one in messages_of(got.body)] == [b"1"]

    in_world(body)


def test_a_client_hears_of_a_bad_filter_before_it_pulls() -> None:
    async def body(world: World) -> None:
        assert (await check(world, "a > 1")).code == ResponseCode.SUCCESS
        assert (await check(world, "a >")).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert (await check(world, "a || b", "TAG")).code == ResponseCode.SUCCESS

    in_world(body)
