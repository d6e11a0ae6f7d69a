"""Every message that may travel between nodes: what the node's codec is made of."""

from __future__ import annotations

from shalott.broker.rabbit.amqp.queue_protocol import MESSAGES as QUEUE_MESSAGES
from shalott.broker.rabbit.management.agent import MESSAGES as AGENT_MESSAGES
from shalott.broker.rabbit.metadata.messages import MESSAGES as METADATA_MESSAGES
from shalott.broker.rabbit.metadata.partitions import MESSAGES as PARTITION_MESSAGES
from shalott.broker.rabbit.metadata.raft_transport import MESSAGES as CONSENSUS_MESSAGES
from shalott.broker.rabbit.mirrored.messages import MESSAGES as MIRROR_MESSAGES
from shalott.broker.rabbit.processes.messages import MESSAGES as PROCESS_MESSAGES
from shalott.broker.rabbit.processes.messages import Message

ALL: tuple[type[Message], ...] = (
    *PROCESS_MESSAGES,
    *METADATA_MESSAGES,
    *PARTITION_MESSAGES,
    *CONSENSUS_MESSAGES,
    *QUEUE_MESSAGES,
    *MIRROR_MESSAGES,
    *AGENT_MESSAGES,
)
