"""What RocketMQ promises its consumer groups, each promise with who says so.

docs/reference/consumers.md tells them to people, with what explains a breach under failover.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Promise:
    """``name`` is the checker's."""

    name: str
    promise: str
    source: str


PROMISES: tuple[Promise, ...] = (
    Promise(
        "group-fates",
        "Every acknowledged message is in its topic's log, and each group has one outcome for it.",
        "RocketMQ's documentation, Best Practice for Producer: SEND_OK; shalott/checkers/logs",
    ),
    Promise(
        "group-not-skipped",
        "A group's offset passes no message that its members were not given to an end.",
        "RocketMQ's documentation, Features: At least Once; ProcessQueue.removeMessage",
    ),
    Promise(
        "group-redelivery",
        "A message is given to a group again only if an event explains it, and none that was"
        " committed comes again but by a failover within the copies' age.",
        "RocketMQ's documentation, Features: At least Once; SlaveSynchronize",
    ),
    Promise(
        "orderly-exclusive",
        "One member at a time has a queue of an orderly group, and works on it.",
        "RocketMQ's documentation, FIFO messages; RebalanceLockManager",
    ),
    Promise(
        "orderly-order",
        "An orderly member is given a queue's messages in their order, one after the other.",
        "RocketMQ's documentation, FIFO messages; ConsumeMessageOrderlyService",
    ),
    Promise(
        "offsets-forward",
        "An offset that was committed does not go back without reset or failover.",
        "RocketMQ's documentation, Consumer Progress; RemoteBrokerOffsetStore (increaseOnly)",
    ),
    Promise(
        "spurious-zero",
        "A group that has committed an offset does not begin anew, at 0 or at the end.",
        "RocketMQ's documentation, Consumer Progress; RebalancePushImpl.computePullFromWhere",
    ),
    Promise(
        "retry-delay",
        "What is sent back comes again, and not before the delay of its level.",
        "RocketMQ's documentation, Consumption Retry; ScheduleMessageService",
    ),
    Promise(
        "retry-count",
        "Each retry counts one more, up to the group's limit; then the dead letters have it once.",
        "RocketMQ's documentation, Consumption Retry; AbstractSendMessageProcessor",
    ),
    Promise(
        "delayed",
        "A delayed message is delivered, once, and not before the delay of its level.",
        "RocketMQ's documentation, Delay Message; ScheduleMessageService",
    ),
    Promise(
        "tags",
        "A group is given only messages with the tags that it subscribes to.",
        "RocketMQ's documentation, Message Filtering",
    ),
    Promise(
        "broadcast-complete",
        "Each member of a broadcast group is given every message from where it began.",
        "RocketMQ's documentation, Consumer Group: Broadcasting",
    ),
    Promise(
        "group-liveness",
        "No group with a living member is stuck while messages wait.",
        "RocketMQ's documentation, Consumer Load Balancing; RebalanceImpl",
    ),
    Promise(
        "group-deliveries",
        "What is delivered was sent, to a topic of the group, before, and whole.",
        "shalott/checkers/logs: phantom, unexpected, too-early, corrupted",
    ),
)
