"""What controllers answer, by request code: from a command's header to its decision and back.

After controller/processor/ControllerRequestProcessor.java; docs/protocols.md 3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from shalott.broker.base.env import Env
from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.config import AddressBook, RocketConfig
from shalott.broker.rocket.controller import decisions
from shalott.broker.rocket.controller import messages as cm
from shalott.broker.rocket.controller import state as cs
from shalott.broker.rocket.controller.decisions import Decision
from shalott.broker.rocket.controller.elections import Elections
from shalott.broker.rocket.controller.live_settings import LiveSettings
from shalott.broker.rocket.controller.replicated_state import ReplicatedState
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode, response
from shalott.broker.rocket.remoting.java_json import decode_java_json
from shalott.broker.rocket.remoting.server import Caller, Handler

H = TypeVar("H", bound=cm.Header)

RAFT_GROUP = "shalott-controller"


class Requests:
    """One controller's."""

    def __init__(
        self,
        env: Env,
        config: RocketConfig,
        book: AddressBook,
        replicated: ReplicatedState,
        elections: Elections,
        settings: LiveSettings,
    ) -> None:
        self._env = env
        self._config = config
        self._book = book
        self._replicated = replicated
        self._elections = elections
        self._settings = settings

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: self._alter_sync_state_set,
            RequestCode.CONTROLLER_ELECT_MASTER: self._elect_master,
            RequestCode.CONTROLLER_REGISTER_BROKER: self._register_broker,
            RequestCode.CONTROLLER_GET_REPLICA_INFO: self._replica_info,
            RequestCode.CONTROLLER_GET_METADATA_INFO: self._metadata,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: self._sync_state_data,
            RequestCode.UPDATE_CONTROLLER_CONFIG: self._update_config,
            RequestCode.GET_CONTROLLER_CONFIG: self._get_config,
            RequestCode.CLEAN_BROKER_DATA: self._clean_broker_data,
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: self._next_broker_id,
            RequestCode.CONTROLLER_APPLY_BROKER_ID: self._apply_broker_id,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
        }

    async def _alter_sync_state_set(self, command: Command, caller: Caller) -> Command:
        try:
            wanted = cm.from_body(command.body, cm.SyncStateSet)
        except BrokerError as error:
            return _invalid(error)

        def compute(state: cs.State, request: cm.AlterSyncStateSet) -> Decision:
            return decisions.alter_sync_state_set(state, request, wanted, self._elections.live)

        return await self._decide(command, cm.AlterSyncStateSet, compute)

    async def _elect_master(self, command: Command, caller: Caller) -> Command:
        try:
            request = cm.from_ext(command.ext, cm.ElectMaster)
        except BrokerError as error:
            return _invalid(error)
        return await self._elections.elect(request)

    async def _register_broker(self, command: Command, caller: Caller) -> Command:
        def compute(state: cs.State, request: cm.RegisterBroker) -> Decision:
            return decisions.register_broker(state, request, self._elections.live)

        return await self._decide(command, cm.RegisterBroker, compute)

    async def _apply_broker_id(self, command: Command, caller: Caller) -> Command:
        return await self._decide(command, cm.ApplyBrokerId, decisions.apply_broker_id)

    async def _clean_broker_data(self, command: Command, caller: Caller) -> Command:
        def compute(state: cs.State, request: cm.CleanBrokerData) -> Decision:
            return decisions.clean_broker_data(state, request, self._elections.live)

        return await self._decide(command, cm.CleanBrokerData, compute)

    async def _replica_info(self, command: Command, caller: Caller) -> Command:
        return await self._look(command, cm.GetReplicaInfo, decisions.replica_info)

    async def _next_broker_id(self, command: Command, caller: Caller) -> Command:
        return await self._look(command, cm.GetNextBrokerId, decisions.next_broker_id)

    async def _sync_state_data(self, command: Command, caller: Caller) -> Command:
        try:
            names = decode_java_json(command.body, list[str])
        except msgspec.DecodeError as error:
            return _invalid(error)

        def compute(state: cs.State, _: cm.Header) -> Decision:
            return decisions.sync_state_data(state, names, self._elections.live)

        return await self._look(command, cm.Header, compute)

    async def _metadata(self, command: Command, caller: Caller) -> Command:
        group = self._replicated.group
        leader = group.leader
        peers = self._config.nodes_with("controller")
        header = cm.ControllerMetadata(
            group=RAFT_GROUP,
            controller_leader_id=leader,
            controller_leader_address=self._address(leader),
            is_leader=group.role == "leader",
            peers="".join(f"{peer}:{self._address(peer)};" for peer in peers),
            controller_epoch=group.term,
        )
        return response(ResponseCode.SUCCESS, "", cm.to_ext(header))

    async def _update_config(self, command: Command, caller: Caller) -> Command:
        try:
            self._settings.change(command.body)
        except BrokerError as error:
            return _invalid(error)
        return response(ResponseCode.SUCCESS)

    async def _get_config(self, command: Command, caller: Caller) -> Command:
        return response(ResponseCode.SUCCESS, body=self._settings.text())

    async def _heartbeat(self, command: Command, caller: Caller) -> Command:
        try:
            heartbeat = cm.from_ext(command.ext, cm.Heartbeat)
        except BrokerError as error:
            return _invalid(error)
        # heartbeat_lost_on_controller_switch: a follower pays no heed.
        if self._replicated.ahead is not None or not self._env.has_bug("KB-RKT-26"):
            self._elections.heartbeats.heard(heartbeat, caller)
        return response(ResponseCode.SUCCESS, "Heart beat success")

    async def _decide(
        self, command: Command, kind: type[H], compute: Callable[[cs.State, H], Decision]
    ) -> Command:
        try:
            request = cm.from_ext(command.ext, kind)
        except BrokerError as error:
            return _invalid(error)
        return await self._replicated.decide(lambda state: compute(state, request))

    async def _look(
        self, command: Command, kind: type[H], compute: Callable[[cs.State, H], Decision]
    ) -> Command:
        try:
            request = cm.from_ext(command.ext, kind)
        except BrokerError as error:
            return _invalid(error)
        return await self._replicated.look(
            lambda state: compute(state, request),
            linearizable=self._settings.now.is_process_read_event,
        )

    def _address(self, node: str) -> str:
        return self._book.advertised(node, "controller") if node else ""


def _invalid(error: Exception) -> Command:
    return response(ResponseCode.CONTROLLER_INVALID_REQUEST, str(error))
