"""ControllerClient: what a broker asks of the controllers, one method a request.

A request goes to the leader, which is found by asking all controllers (1005) and remembered until
it says that it is none, doesn't answer, or its connection is lost. Nothing is asked again on its
own: the caller knows what a repetition means. Outcomes of a request:

- it returns: it is committed;
- OutcomeUnknown, Unanswered: it is unknown;
- any other ControllerError (errors.py), NotLeader among them, Unreachable and NoController: nothing
  came of it (but a failed election that an operator asked for gives up a dead master).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.controller import messages as cm
from shalott.broker.rocket.controller.messages import NoController, NotLeader, refusal
from shalott.broker.rocket.remoting.client import RemotingClient, Unanswered, Unreachable
from shalott.broker.rocket.remoting.command import Command, RequestCode, ResponseCode

TIMEOUT_MS = 3000
HEARTBEAT_TIMEOUT_MS = 1000


@dataclass(frozen=True, slots=True)
class Master:
    """Who rules a group. ``broker_id`` is None and ``address`` "" when there is none."""

    broker_id: int | None
    address: str
    epoch: int
    sync_state_set: tuple[int, ...]
    sync_state_set_epoch: int


@dataclass(frozen=True, slots=True)
class Election:
    """``elected``: by this request; otherwise the master was there already (2011)."""

    master: Master
    elected: bool


class ControllerClient:
    """``controllers``: their advertised addresses (AddressBook.advertised(node, "controller"))."""

    def __init__(
        self,
        remoting: RemotingClient,
        controllers: Sequence[str],
        *,
        timeout_ms: float = TIMEOUT_MS,
    ) -> None:
        self.controllers = tuple(controllers)
        self._remoting = remoting
        self._timeout_ms = timeout_ms
        self._leader = ""
        self._asked: dict[str, asyncio.Task[cm.ControllerMetadata | None]] = {}

    @property
    def leader(self) -> str:
        """The leader's address as far as this client knows; "" if it doesn't."""
        return self._leader

    # -- who leads ---------------------------------------------------------------------------------

    async def metadata(self, address: str) -> cm.ControllerMetadata:
        """What that controller knows of the controllers. Raises Unreachable, Unanswered and
        ControllerError."""
        request = Command(code=RequestCode.CONTROLLER_GET_METADATA_INFO)
        answer = await self._invoke(address, request, self._timeout_ms)
        return cm.from_ext(answer.ext, cm.ControllerMetadata)

    async def find_leader(self) -> str:
        """Ask all controllers; of the first majority that knows a leader the newest answer counts.

        So no broker waits for a controller whose host is gone. Fewer than a majority are believed
        when no other is left to answer. Raises NoController.
        """
        waiting = [self._question(address) for address in self.controllers]
        known: list[cm.ControllerMetadata] = []
        while waiting and len(known) <= len(self.controllers) // 2:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            answers = [question.result() for question in waiting if question.done()]
            known += [a for a in answers if a is not None and a.controller_leader_address]
            waiting = [question for question in waiting if not question.done()]
        if not known:
            self._leader = ""
            raise NoController(f"none of {', '.join(self.controllers)} knows a leader")
        best = max(known, key=lambda answer: (answer.controller_epoch, answer.is_leader))
        self._leader = best.controller_leader_address
        return self._leader

    def _question(self, address: str) -> asyncio.Task[cm.ControllerMetadata | None]:
        """One at a time an address: a host that is gone keeps its own waiting for seconds."""
        task = self._asked.get(address)
        if task is None or task.done():
            name = f"controller metadata of {address}"
            task = asyncio.create_task(self._metadata_or_none(address), name=name)
            self._asked[address] = task
        return task

    async def _metadata_or_none(self, address: str) -> cm.ControllerMetadata | None:
        try:
            return await self.metadata(address)
        except BrokerError:
            return None

    # -- identity ----------------------------------------------------------------------------------

    async def next_broker_id(self, cluster: str, group: str) -> int:
        """1012. Nothing is reserved: ``apply_broker_id`` does that."""
        header = cm.GetNextBrokerId(cluster_name=cluster, broker_name=group)
        answer = await self._ask(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header)
        return cm.from_ext(answer.ext, cm.NextBrokerId).next_broker_id

    async def apply_broker_id(
        self, cluster: str, group: str, broker_id: int, check_code: str
    ) -> None:
        """1013; may be asked again with the same check code ("address;time").
        Raises BrokerIdInvalid."""
        header = cm.ApplyBrokerId(
            cluster_name=cluster,
            broker_name=group,
            applied_broker_id=broker_id,
            register_check_code=check_code,
        )
        await self._ask(RequestCode.CONTROLLER_APPLY_BROKER_ID, header)

    async def register_broker(
        self, cluster: str, group: str, broker_id: int, address: str
    ) -> Master:
        """1003. The master only if it is alive. Raises NeedToRegister."""
        header = cm.RegisterBroker(
            cluster_name=cluster, broker_name=group, broker_id=broker_id, broker_address=address
        )
        answer = await self._ask(RequestCode.CONTROLLER_REGISTER_BROKER, header)
        info = cm.from_ext(answer.ext, cm.MasterInfo)
        known = cm.from_body(answer.body, cm.SyncStateSet)
        return Master(
            info.master_broker_id,
            info.master_address or "",
            info.master_epoch or 0,
            known.sync_state_set,
            known.sync_state_set_epoch,
        )

    # -- mastership --------------------------------------------------------------------------------

    async def elect_master(
        self, cluster: str, group: str, broker_id: int, *, designate: bool = False
    ) -> Election:
        """1002, as broker ``broker_id`` (-1: an operator, for the best one). Raises
        NeedToRegister and ElectionFailed."""
        header = cm.ElectMaster(
            cluster_name=cluster, broker_name=group, broker_id=broker_id, designate_elect=designate
        )
        answer = await self._ask(
            RequestCode.CONTROLLER_ELECT_MASTER,
            header,
            allowed=ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
        )
        info = cm.from_ext(answer.ext, cm.MasterInfo)
        members = cm.from_body(answer.body, cm.ElectMasterBody).sync_state_set
        master = Master(
            info.master_broker_id,
            info.master_address or "",
            info.master_epoch or 0,
            members,
            info.sync_state_set_epoch or 0,
        )
        return Election(master, answer.code == ResponseCode.SUCCESS)

    async def replica_info(self, group: str) -> Master:
        """1004. Raises GroupUnknown."""
        header = cm.GetReplicaInfo(broker_name=group)
        answer = await self._ask(RequestCode.CONTROLLER_GET_REPLICA_INFO, header)
        info = cm.from_ext(answer.ext, cm.ReplicaInfo)
        known = cm.from_body(answer.body, cm.SyncStateSet)
        return Master(
            info.master_broker_id,
            info.master_address or "",
            info.master_epoch,
            known.sync_state_set,
            known.sync_state_set_epoch,
        )

    async def alter_sync_state_set(
        self,
        group: str,
        master_id: int,
        master_epoch: int,
        members: Sequence[int],
        sync_state_set_epoch: int,
    ) -> cm.SyncStateSet:
        """1001: replace the set of that epoch by ``members``. The answer is the set as it is now,
        also when it was that already. Raises Fenced, InvalidMaster and ReplicaNotUsable."""
        header = cm.AlterSyncStateSet(
            broker_name=group, master_broker_id=master_id, master_epoch=master_epoch
        )
        wanted = cm.SyncStateSet(
            sync_state_set=tuple(sorted(members)), sync_state_set_epoch=sync_state_set_epoch
        )
        answer = await self._ask(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header, cm.to_body(wanted)
        )
        return cm.from_body(answer.body, cm.SyncStateSet)

    # -- operators ---------------------------------------------------------------------------------

    async def sync_state_data(self, groups: Sequence[str]) -> dict[str, cm.ReplicasInfo]:
        """1006: groups without a registration are left out."""
        body = cm.to_body(list(groups))
        answer = await self._ask(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, None, body)
        return cm.from_body(answer.body, cm.BrokerReplicasInfo).replicas_info_table

    async def clean_broker_data(
        self, cluster: str, group: str, broker_ids: Sequence[int] = (), *, living: bool = False
    ) -> None:
        """1011: forget brokers, or the whole group."""
        header = cm.CleanBrokerData(
            cluster_name=cluster,
            broker_name=group,
            broker_controller_ids_to_clean=";".join(map(str, broker_ids)) or None,
            is_clean_living_broker=living,
        )
        await self._ask(RequestCode.CLEAN_BROKER_DATA, header)

    # -- life --------------------------------------------------------------------------------------

    async def heartbeat(self, address: str, heartbeat: cm.Heartbeat) -> None:
        """904 to one controller; brokers send it to each. Raises Unreachable and Unanswered."""
        request = Command(code=RequestCode.BROKER_HEARTBEAT, ext=cm.to_ext(heartbeat))
        await self._invoke(address, request, HEARTBEAT_TIMEOUT_MS)

    # -- masters that are no peers ---------------------------------------------------------------

    async def ha_address_of(self, broker: str) -> str:
        """906, to a broker that the controllers named as the master: its HA address, "" unless it
        is a master by now. Raises Unreachable, Unanswered and ControllerError."""
        request = Command(code=RequestCode.EXCHANGE_BROKER_HA_INFO)
        answer = await self._invoke(broker, request, self._timeout_ms)
        return answer.ext.get("masterHaAddress", "")

    # -- asking ------------------------------------------------------------------------------------

    async def _ask(
        self,
        code: RequestCode,
        header: cm.Header | None,
        body: bytes = b"",
        *,
        allowed: int = ResponseCode.SUCCESS,
    ) -> Command:
        """The leader's answer; ``allowed`` is a code besides SUCCESS that is no refusal."""
        leader = self._leader
        if not self._remoting.is_connected(leader):  # a dead one would be dialled for seconds
            leader = await self.find_leader()
        request = Command(code=code, ext={} if header is None else cm.to_ext(header), body=body)
        try:
            return await self._invoke(leader, request, self._timeout_ms, allowed)
        except NotLeader as error:
            self._leader = error.leader if error.leader != leader else ""
            raise
        except (Unreachable, Unanswered):
            self._leader = ""
            raise

    async def _invoke(
        self, address: str, request: Command, timeout_ms: float, allowed: int = ResponseCode.SUCCESS
    ) -> Command:
        answer = await self._remoting.invoke(address, request, timeout_ms)
        if answer.code not in (ResponseCode.SUCCESS, allowed):
            raise refusal(answer)
        return answer
