"""Transactions of version 2 (KIP-890), which no client library for Python speaks: aiokafka's
producer with two requests of the newer protocol.

A transaction's partitions are added by what is produced to them, and each end of one raises the
producer's epoch. So what an earlier transaction left in the network, a record or a commit, is of an
older epoch when it comes, and is refused. Shapes: https://kafka.apache.org/protocol (Produce 12,
EndTxn 5).
"""

from __future__ import annotations

from aiokafka import AIOKafkaProducer
from aiokafka.errors import ConcurrentTransactions, KafkaError
from aiokafka.producer import sender
from aiokafka.producer.transaction_manager import PidAndEpoch, TransactionManager
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import EndTxnRequest
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactBytes,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

TEXT, TAGS = CompactString("utf-8"), ("tags", TaggedFields)
OLDER_FIELDS = 7  # of a partition's answer, as aiokafka takes them


class ProduceResponse12(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 0, 12
    SCHEMA = Schema(
        ("topics", CompactArray(
            ("topic", TEXT),
            ("partitions", CompactArray(
                ("partition", Int32),
                ("error_code", Int16),
                ("offset", Int64),
                ("timestamp", Int64),
                ("log_start_offset", Int64),
                ("record_errors", CompactArray(("batch_index", Int32), ("message", TEXT), TAGS)),
                ("error_message", TEXT),
                TAGS,
            )),
            TAGS,
        )),
        ("throttle_time_ms", Int32),
        TAGS,
    )  # fmt: skip


class ProduceRequest12(RequestStruct):  # type: ignore[misc]
    API_KEY, API_VERSION, FLEXIBLE_VERSION = 0, 12, True
    RESPONSE_TYPE = ProduceResponse12
    SCHEMA = Schema(
        ("transactional_id", TEXT),
        ("required_acks", Int16),
        ("timeout", Int32),
        ("topics", CompactArray(
            ("topic", TEXT),
            ("partitions", CompactArray(("partition", Int32), ("messages", CompactBytes), TAGS)),
            TAGS,
        )),
        TAGS,
    )  # fmt: skip


class EndTxnResponse5(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 26, 5
    SCHEMA = Schema(
        ("throttle_time_ms", Int32), ("error_code", Int16),
        ("producer_id", Int64), ("producer_epoch", Int16), TAGS,
    )  # fmt: skip


class EndTxnRequest5(RequestStruct):  # type: ignore[misc]
    API_KEY, API_VERSION, FLEXIBLE_VERSION = 26, 5, True
    RESPONSE_TYPE = EndTxnResponse5
    SCHEMA = Schema(
        ("transactional_id", TEXT), ("producer_id", Int64), ("producer_epoch", Int16),
        ("transaction_result", Boolean), TAGS,
    )  # fmt: skip


class Produce(Request[ProduceRequest12]):  # type: ignore[misc]
    API_KEY = 0

    def __init__(self, older: ProduceRequest) -> None:
        self._older, self.required_acks = older, older.required_acks

    def build(self, request_struct_class: type[ProduceRequest12]) -> ProduceRequest12:
        told = self._older
        topics: list[tuple[object, ...]] = [
            (topic, [(key, bytes(batch), {}) for key, batch in partitions], {})
            for topic, partitions in told._topics
        ]
        return request_struct_class(
            told._transactional_id, told._required_acks, told._timeout, topics, {}
        )


class EndTxn(Request[EndTxnRequest5]):  # type: ignore[misc]
    API_KEY = 26

    def __init__(self, older: EndTxnRequest) -> None:
        self._older = older

    def build(self, request_struct_class: type[EndTxnRequest5]) -> EndTxnRequest5:
        told = self._older
        return request_struct_class(
            told._transactional_id,
            told._producer_id,
            told._producer_epoch,
            bool(told._transaction_result),
            {},
        )


class SendHandler(sender.SendProduceReqHandler):  # type: ignore[misc]
    def create_request(self) -> Produce:
        return Produce(super().create_request())

    def handle_response(self, response: ProduceResponse12) -> None:
        response.topics = [
            (topic, [told[:OLDER_FIELDS] for told in partitions])
            for topic, partitions, _ in response.topics
        ]
        super().handle_response(response)

    def _can_retry(self, error: KafkaError, batch: object) -> bool:
        """The transaction before this one has ended, and its partitions are told of it yet."""
        return isinstance(error, ConcurrentTransactions) or super()._can_retry(error, batch)


class EndHandler(sender.EndTxnHandler):  # type: ignore[misc]
    def create_request(self) -> EndTxn:
        return EndTxn(super().create_request())

    def handle_response(self, response: EndTxnResponse5) -> float | None:
        if not response.error_code:
            manager: TransactionManager = self._sender._txn_manager
            manager._pid_and_epoch = PidAndEpoch(response.producer_id, response.producer_epoch)
            manager._sequence_numbers.clear()  # an epoch's begin at 0
        backoff: float | None = super().handle_response(response)
        return backoff


class Sender(sender.Sender):  # type: ignore[misc]
    def _maybe_do_transactional_request(self) -> object:
        for partition in list(self._txn_manager.partitions_to_add()):
            self._txn_manager.partition_added(partition)
        return super()._maybe_do_transactional_request()

    async def _send_produce_req(self, node_id: int, batches: dict[object, object]) -> None:
        await SendHandler(self, batches).do(node_id)
        self._in_flight.remove(node_id)
        for partition in batches:
            self._muted_partitions.remove(partition)

    async def _do_txn_commit(self, commit_result: bool) -> None:
        manager: TransactionManager = self._txn_manager
        await self._message_accumulator.flush_for_commit()
        if manager.is_empty_transaction():
            manager.complete_transaction()
            return
        node_id = await self._find_coordinator(
            sender.CoordinationType.TRANSACTION, manager.transactional_id
        )
        await EndHandler(self, commit_result).do(node_id)


class ProtectedProducer(AIOKafkaProducer):  # type: ignore[misc]
    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self._sender.__class__ = Sender  # the library makes it, and has no place to say which
