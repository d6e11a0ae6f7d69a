"""What controllers refuse, by response code (docs/protocols.md 3.1).

BrokerError
 └─ ControllerError              ``code`` and ``reason``; any code that has no class of its own
     ├─ OutcomeUnknown            1: it was proposed, and nobody knows whether it will be committed
     ├─ NotLeader                 2007: ``leader`` is the address of the one to ask, "" if unknown
     ├─ Fenced                    2000, 2001: an epoch is not the current one
     ├─ InvalidMaster             2002: another broker, or none, is the master
     ├─ ReplicaNotUsable          2003, 2006: a member of a wanted set is unknown, or not alive
     ├─ GroupUnknown              2008: nobody registered under that broker name
     ├─ NeedToRegister            2010: this broker is not known to the controllers
     ├─ ElectionFailed            2004, 2012: no candidate
     └─ BrokerIdInvalid           2014: the id is another broker's
NoController                      none answers as the leader
"""

from __future__ import annotations

from shalott.broker.base.errors import BrokerError
from shalott.broker.rocket.remoting.codes import ResponseCode
from shalott.broker.rocket.remoting.command import Command


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
