"""Consumer groups, by administrators: 200, 207, 225, 352 (upstream: AdminBrokerProcessor)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from shalott.broker.rocket.processor.attributes import Attribute, IllegalAttribute, changed
from shalott.broker.rocket.processor.broker import Broker
from shalott.broker.rocket.processor.clients import decode_json
from shalott.broker.rocket.processor.fields import Fields
from shalott.broker.rocket.processor.puts import not_master
from shalott.broker.rocket.processor.topics import SubscriptionGroup
from shalott.broker.rocket.remoting.command import Command, ResponseCode, response
from shalott.broker.rocket.remoting.server import Caller

OF_GROUPS: Mapping[str, Attribute] = {}  # 5.3.3 has none


class GroupList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST (225)."""

    group_config_list: tuple[SubscriptionGroup, ...]


async def update_and_create_group(broker: Broker, request: Command, caller: Caller) -> Command:
    return _put(broker, (decode_json(request.body, SubscriptionGroup),))


async def update_and_create_groups(broker: Broker, request: Command, caller: Caller) -> Command:
    return _put(broker, decode_json(request.body, GroupList).group_config_list)


def _put(broker: Broker, groups: tuple[SubscriptionGroup, ...]) -> Command:
    """Each has changes for attributes."""
    if not broker.is_master:
        return not_master(broker)
    for group in groups:
        known = broker.tables.groups.get(group.group_name)
        try:
            attributes = changed(
                None if known is None else known.attributes, group.attributes, OF_GROUPS
            )
        except IllegalAttribute as error:
            return response(ResponseCode.SYSTEM_ERROR, str(error))
        group = msgspec.structs.replace(group, attributes=attributes)
        if group != known:
            broker.tables.put_group(group)
    return response(ResponseCode.SUCCESS)


async def delete_group(broker: Broker, request: Command, caller: Caller) -> Command:
    if not broker.is_master:
        return not_master(broker)
    fields = Fields(request.ext)
    with_offsets = fields.flag("removeOffset") or fields.flag("cleanOffset")
    broker.tables.delete_group(fields.text("groupName"), with_offsets=with_offsets)
    return response(ResponseCode.SUCCESS)


async def group_config(broker: Broker, request: Command, caller: Caller) -> Command:
    """A master makes one that it does not know, as upstream does."""
    name = Fields(request.ext).text("group")
    if broker.is_master:
        group = broker.tables.group(name)
    else:
        group = broker.tables.groups.get(name) or SubscriptionGroup(group_name=name)
    return response(ResponseCode.SUCCESS, body=msgspec.json.encode(group))
