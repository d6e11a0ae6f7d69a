"""What brokers and controllers say to each other: headers (extFields), bodies and refusals.

Sources: remoting/protocol/header/controller and remoting/protocol/body of RocketMQ 5; reference
2.2.9. A header is a struct whose fields, in camel case, are the keys of a command's ``ext``; a
value is text there, and a null one is left out. Sets of broker ids are sorted tuples here.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.remoting.command import Command, ResponseCode
from shalott.broker.rocket.remoting.java_json import decode_java_json

H = TypeVar("H", bound=msgspec.Struct)

NO_BROKER_ID = -1  # in ElectMaster: the best one
FIRST_BROKER_ID = 1


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Fields of a command's ``ext``."""


def to_ext(header: Header) -> dict[str, str]:
    """The header as a command carries it."""
    fields = msgspec.to_builtins(header)
    return {
        key: value if type(value) is str else _text(value)
        for key, value in fields.items()
        if value is not None
    }


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def from_ext(ext: dict[str, str], kind: type[H]) -> H:
    """The header that a command carries; numbers and truth values come as text.

    Raises BrokerError when a field is missing or is none of its kind.
    """
    try:
        return msgspec.convert(ext, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BrokerError(f"{kind.__name__}: {error}") from None


def from_body(body: bytes, kind: type[H]) -> H:
    """The JSON body as a type. Raises BrokerError when it is none."""
    try:
        return decode_java_json(body, kind)
    except msgspec.DecodeError as error:
        raise BrokerError(f"{kind.__name__}: {error}") from None


def to_body(body: msgspec.Struct | list[str]) -> bytes:
    return msgspec.json.encode(body)


# -- bodies ----------------------------------------------------------------------------------------


class SyncStateSet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Ids of the replicas that keep up, the master among them, and the version of that set."""

    sync_state_set: tuple[int, ...] = ()
    sync_state_set_epoch: int = 0


class BrokerMemberGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that ever registered in a broker group."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]


class ElectMasterBody(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: tuple[int, ...] = ()


class ReplicaIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    broker_name: str
    broker_id: int
    broker_address: str
    alive: bool


class ReplicasInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One group in the answer to GET_SYNC_STATE_DATA."""

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    in_sync_replicas: tuple[ReplicaIdentity, ...] = ()
    not_in_sync_replicas: tuple[ReplicaIdentity, ...] = ()


class BrokerReplicasInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    replicas_info_table: dict[str, ReplicasInfo] = {}


# -- requests --------------------------------------------------------------------------------------


class AlterSyncStateSet(Header, frozen=True, kw_only=True):
    """1001, with a SyncStateSet: the wanted set, and the epoch of the one it replaces."""

    broker_name: str
    master_broker_id: int
    master_epoch: int
    invoke_time: int = 0


class ElectMaster(Header, frozen=True, kw_only=True):
    """1002. ``designate_elect``: this broker, also if another is the master now."""

    cluster_name: str = ""
    broker_name: str
    broker_id: int = NO_BROKER_ID
    designate_elect: bool = False
    invoke_time: int = 0


class RegisterBroker(Header, frozen=True, kw_only=True):
    """1003."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_address: str
    invoke_time: int = 0


class GetReplicaInfo(Header, frozen=True, kw_only=True):
    """1004."""

    broker_name: str


class CleanBrokerData(Header, frozen=True, kw_only=True):
    """1011. Ids are separated by semicolons; none: the whole group."""

    cluster_name: str = ""
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: int = 0


class GetNextBrokerId(Header, frozen=True, kw_only=True):
    """1012."""

    cluster_name: str
    broker_name: str


class ApplyBrokerId(Header, frozen=True, kw_only=True):
    """1013. ``register_check_code`` is "address;time": who asked, so that it may ask again."""

    cluster_name: str
    broker_name: str
    applied_broker_id: int
    register_check_code: str


class Heartbeat(Header, frozen=True, kw_only=True):
    """904, to every controller."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: int
    epoch: int = -1
    max_offset: int = -1
    confirm_offset: int = -1
    heartbeat_timeout_mills: int = 10_000
    election_priority: int = 0x7FFFFFFF


# -- answers ---------------------------------------------------------------------------------------


class AlteredSyncStateSet(Header, frozen=True, kw_only=True):
    new_sync_state_set_epoch: int


class MasterInfo(Header, frozen=True, kw_only=True):
    """Of 1002 and 1003, and the whole of 1008, with the set (1002: an ElectMasterBody) as body.

    Without a master the first two are absent.
    """

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None


class ReplicaInfo(Header, frozen=True, kw_only=True):
    """Of 1004, with a SyncStateSet as body."""

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int = 0


class NextBrokerId(Header, frozen=True, kw_only=True):
    cluster_name: str
    broker_name: str
    next_broker_id: int


class AppliedBrokerId(Header, frozen=True, kw_only=True):
    cluster_name: str
    broker_name: str


class ControllerMetadata(Header, frozen=True, kw_only=True):
    """Of 1005. ``peers`` is "name:host:port;" repeated. ``controller_epoch`` is ours: the Raft term
    in which the answerer knows that leader, so that the answer of a deposed one loses.
    """

    group: str
    controller_leader_id: str = ""
    controller_leader_address: str = ""
    is_leader: bool = False
    peers: str = ""
    controller_epoch: int = 0


# -- errors ----------------------------------------------------------------------------------------
# What controllers refuse, by response code (docs/protocols.md 3.1).
#
# BrokerError
#  └─ ControllerError             ``code`` and ``reason``; any code that has no class of its own
#      ├─ OutcomeUnknown            1: it was proposed, and may be committed or not
#      ├─ NotLeader                 2007: ``leader`` is the address of the one to ask, "" if unknown
#      ├─ Fenced                    2000, 2001: an epoch is not the current one
#      ├─ InvalidMaster             2002: another broker, or none, is the master
#      ├─ ReplicaNotUsable          2003, 2006: a member of a wanted set is unknown, or not alive
#      ├─ GroupUnknown              2008: no broker registered under that name
#      ├─ NeedToRegister            2010: this broker is not known to the controllers
#      ├─ ElectionFailed            2004, 2012: no candidate
#      └─ BrokerIdInvalid           2014: the id is another broker's
# NoController                      none answers as the leader


class ControllerError(BrokerError):
    """A controller said no."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class OutcomeUnknown(ControllerError): ...


class NotLeader(ControllerError):
    def __init__(self, code: int, reason: str, leader: str = "") -> None:
        super().__init__(code, reason)
        self.leader = leader


class Fenced(ControllerError): ...


class InvalidMaster(ControllerError): ...


class ReplicaNotUsable(ControllerError): ...


class GroupUnknown(ControllerError): ...


class NeedToRegister(ControllerError): ...


class ElectionFailed(ControllerError): ...


class BrokerIdInvalid(ControllerError): ...


class NoController(BrokerError): ...


def refusal(answer: Command) -> ControllerError:
    """The error of an answer that is no success."""
    code, reason = answer.code, answer.remark
    match code:
        case ResponseCode.SYSTEM_ERROR:
            return OutcomeUnknown(code, reason)
        case ResponseCode.CONTROLLER_NOT_LEADER:
            return NotLeader(code, reason, answer.ext.get("controllerLeaderAddress", ""))
        case (
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH
            | ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
        ):
            return Fenced(code, reason)
        case ResponseCode.CONTROLLER_INVALID_MASTER:
            return InvalidMaster(code, reason)
        case ResponseCode.CONTROLLER_INVALID_REPLICAS | ResponseCode.CONTROLLER_BROKER_NOT_ALIVE:
            return ReplicaNotUsable(code, reason)
        case ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
            return GroupUnknown(code, reason)
        case ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
            return NeedToRegister(code, reason)
        case (
            ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
            | ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        ):
            return ElectionFailed(code, reason)
        case ResponseCode.CONTROLLER_BROKER_ID_INVALID:
            return BrokerIdInvalid(code, reason)
        case _:
            return ControllerError(code, reason)
