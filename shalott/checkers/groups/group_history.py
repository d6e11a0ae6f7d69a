"""The history of consumer groups as columns: what was sent, who had which queue, what was given to
whom, what was said of it, and what was left at the end.

The rows are those of docs/reference/consumers.md, section 1. Everything is parsed once for all
checkers of a run. Groups are numbered as the plan has them (GroupRules.groups), messages by their
value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shalott.checkers.groups.group_rules import GroupRules
from shalott.checkers.groups.master_changes import Turns, read_turns
from shalott.checkers.history.column_values import Words
from shalott.checkers.history.columns import NEVER, Bools, Codes, Ints, client_operations
from shalott.checkers.history.faults import Surroundings, read_surroundings
from shalott.checkers.history.tenures import read_events
from shalott.checkers.logs.records import FAIL, INFO, NOWHERE, OK, LogHistory, read_log
from shalott.checkers.logs.values import FinalReads, final_reads
from shalott.core.history import History

KINDS = (
    *("deliver", "send-back", "commit", "lock", "assignment", "member"),
    *("moved", "reset", "final-offset"),
)
OUTCOMES = ("", "success", "later", "suspend", "dropped")
UNSEEN, SUCCESS, LATER, SUSPEND, DROPPED = range(len(OUTCOMES))
WHYS = ("", "committed", "first", "last", "local")
ENDS = ("", "rebalanced", "lock-lost", "left", "died", "closed")
UNSAID = -1
RETRY, DEAD = "%RETRY%", "%DLQ%"
UNKNOWN, DAMAGED = -1, -2  # in place of a message's number


@dataclass(frozen=True, slots=True)
class Rows:
    """Consumers' rows of one kind, by the time at which they began. All columns are of one length;
    what a kind does not say is 0."""

    index: Ints  # in the history
    group: Codes  # number in the rules; -1: none of them
    member: Codes
    key: Codes
    message: Ints  # number of the message; UNKNOWN, DAMAGED
    offset: Ints  # NOWHERE: none
    begin_ns: Ints
    end_ns: Ints  # NEVER: it was not seen
    type: Codes  # OK, FAIL, INFO
    outcome: Codes  # in OUTCOMES
    why: Codes  # in WHYS
    ended: Codes  # in ENDS
    reconsumed: Ints
    level: Ints
    seen: Ints  # UNSAID: not asked
    held: Bools

    def __len__(self) -> int:
        return len(self.index)

    def take(self, rows: Ints | Bools) -> Rows:
        return Rows(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Messages:
    value: Ints
    index: Ints  # in the history
    key: Codes
    offset: Ints  # NOWHERE: delayed, or not told
    outcome: Codes  # OK, FAIL, INFO
    begin_ns: Ints
    end_ns: Ints
    tag: Codes  # -1: none
    delay: Ints  # level; 0: not delayed
    attempts: Ints  # how often its client sent it

    def __len__(self) -> int:
        return len(self.value)

    def numbers(self, value: Ints) -> Ints:
        """Of these values; UNKNOWN for what no client sent."""
        if not len(self.value):
            return np.full(len(value), UNKNOWN, dtype=np.int64)
        at = np.minimum(np.searchsorted(self.value, value), len(self.value) - 1)
        return np.where(self.value[at] == value, at, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Final:
    """What all final reads found: distinct (key, offset, message), sorted by these.

    ``whole`` and ``read_ns``, by key: whether it was read to its end at every node, and when the
    first of these reads began.
    """

    key: Codes
    offset: Ints
    message: Ints
    whole: Bools
    read_ns: Ints
    missing: tuple[str, ...]  # sentences
    settled: bool


@dataclass(frozen=True, slots=True)
class Keys:
    """Every key of the run by its code: its name, its topic, whose retries or dead letters it
    holds (the group's number, or -1)."""

    names: tuple[str, ...]
    topics: tuple[str, ...]
    retry_of: Codes
    dead_of: Codes

    def code(self, name: str) -> int:
        """-1: no row names it."""
        return self.names.index(name) if name in self.names else -1


@dataclass(frozen=True, slots=True)
class GroupHistory:
    rules: GroupRules
    around: Surroundings
    turns: Turns
    keys: Keys
    members: tuple[str, ...]
    tags: tuple[str, ...]
    messages: Messages
    final: Final
    deliveries: Rows
    send_backs: Rows
    commits: Rows
    locks: Rows
    assignments: Rows
    lives: Rows  # of members
    moves: Rows
    resets: Rows
    offsets: Rows  # at the end
    malformed: int
    complete: bool

    @property
    def end_ns(self) -> int:
        return self.around.end_ns


def read_groups(history: History, rules: GroupRules) -> GroupHistory:
    around = read_surroundings(history)
    kinds = pc.field("f")
    log = read_log(_only(history, kinds.isin(["send", "poll"])))
    own = _Own.read(_only(history, kinds.isin(KINDS)), rules)
    tags, messages, untold = _messages(history, log)
    names = tuple(dict.fromkeys((*own.keys, *log.ops.key.names)))
    final = _final(log, around, names, messages, history.complete)
    own.rows.message[:] = np.where(own.is_sound, messages.numbers(own.value), DAMAGED)
    part = {kind: own.rows.take(own.kind == number) for number, kind in enumerate(KINDS)}
    lives = part["member"]
    return GroupHistory(
        rules=rules,
        around=around,
        turns=read_turns(read_events(history), around, rules),
        keys=_keys(names, rules),
        members=own.members,
        tags=tags,
        messages=replace(messages, key=_recoded(messages.key, log.ops.key.names, names)),
        final=final,
        deliveries=_until_death(part["deliver"], lives),
        send_backs=part["send-back"],
        commits=part["commit"],
        locks=part["lock"],
        assignments=_until_death(part["assignment"], lives),
        lives=lives,
        moves=part["moved"],
        resets=part["reset"],
        offsets=part["final-offset"],
        malformed=own.malformed + untold,
        complete=history.complete,
    )


def _only(history: History, condition: pc.Expression) -> History:
    table = history.ops.filter(condition)
    no_process = pa.array(np.zeros(table.num_rows, dtype=np.int32))
    at = table.schema.get_field_index("process")
    return replace(history, ops=table.set_column(at, table.schema.field(at), no_process))


class _Own(NamedTuple):
    """Rows of all kinds, and what tells them apart."""

    rows: Rows
    kind: Ints  # in KINDS
    value: Ints
    is_sound: Bools
    keys: tuple[str, ...]
    members: tuple[str, ...]
    malformed: int

    @staticmethod
    def read(history: History, rules: GroupRules) -> _Own:
        ops = client_operations(history)
        said = read_extras(history.ops["extra"])
        member = said.words(lambda extra: extra.member)
        groups = [group.name for group in rules.groups]
        of_key = ops.f.among(("member",))  # a member's key is its group
        by_extra = _coded(said, lambda extra: extra.group, groups)
        group = np.where(of_key, _recoded(ops.key.codes, ops.key.names, groups), by_extra)
        type_ = np.full(len(ops), INFO, dtype=np.int32)
        type_[ops.type.equal("ok")], type_[ops.type.equal("fail")] = OK, FAIL
        offset = pc.fill_null(history.ops["offset"], NOWHERE).to_numpy()
        rows = Rows(
            index=ops.index,
            group=group.astype(np.int32),
            member=member.codes,
            key=ops.key.codes,
            message=np.zeros(len(ops), dtype=np.int64),
            offset=offset,
            begin_ns=ops.invoke_ns,
            end_ns=ops.complete_ns,
            type=type_,
            outcome=_coded(said, lambda extra: extra.outcome, OUTCOMES),
            why=_coded(said, lambda extra: extra.why, WHYS),
            ended=_coded(said, lambda extra: extra.ended, ENDS),
            reconsumed=said.integers(lambda extra: extra.reconsumed),
            level=said.integers(lambda extra: extra.level),
            seen=said.integers(lambda extra: extra.seen, UNSAID),
            held=said.flags(lambda extra: extra.held),
        )
        kind = _recoded(ops.f.codes, ops.f.names, KINDS).astype(np.int64)
        order = np.argsort(rows.begin_ns, kind="stable")
        if (order[1:] < order[:-1]).any():
            rows, kind = rows.take(order), kind[order]
            ops_value, ops_has = ops.value[order], ops.has_value[order]
        else:
            ops_value, ops_has = ops.value, ops.has_value
        malformed = said.malformed + int((rows.group < 0).sum())
        return _Own(rows, kind, ops_value, ops_has, ops.key.names, member.names, malformed)


def _coded(said: Extras, what: Callable[[Extra], str], names: Sequence[str]) -> Codes:
    """The place of each row's word among the names; -1 for any other word."""
    words = said.words(what)
    return _recoded(words.codes, words.names, names)


def _recoded(codes: Codes, old: Sequence[str], new: Sequence[str]) -> Codes:
    """Codes of other names; -1 for a name that is not among them."""
    number = {name: code for code, name in enumerate(new)}
    table = np.array([number.get(name, -1) for name in old] or [-1], dtype=np.int32)
    return np.asarray(table[codes])


def _messages(history: History, log: LogHistory) -> tuple[tuple[str, ...], Messages, int]:
    """The tags of the run, every send (keys as the log codes them), and how many were not
    recorded as they should be: acknowledged without an offset though they are not delayed."""
    sends = log.sends
    table = history.ops.filter(pc.field("f").isin(["send"]))
    table = table.filter(pc.is_valid(table["value"]))
    said = read_extras(table["extra"])
    tag = said.words(lambda extra: extra.tag or "")
    order = np.argsort(sends.value, kind="stable")
    row = sends.row[order]
    delay = said.integers(lambda extra: extra.delay)[order]
    messages = Messages(
        value=sends.value[order],
        index=log.ops.index[row],
        key=sends.key[order],
        offset=np.where(delay > 0, NOWHERE, sends.offset[order]),
        outcome=sends.outcome[order],
        begin_ns=log.ops.invoke_ns[row],
        end_ns=log.ops.complete_ns[row],
        tag=tag.codes[order],
        delay=delay,
        attempts=sends.attempts[order],
    )
    acked = messages.outcome == OK
    untold = int((acked & (messages.offset == NOWHERE) & (delay == 0)).sum())
    return tag.names, messages, said.malformed + untold


def _final(
    log: LogHistory,
    around: Surroundings,
    names: tuple[str, ...],
    messages: Messages,
    complete: bool,
) -> Final:
    reads: FinalReads = final_reads(log, around, complete)
    records, ops = log.records, log.ops
    kept = np.flatnonzero(reads.is_final)
    key = _recoded(records.key[kept], ops.key.names, names)
    number = np.where(records.is_sound[kept], messages.numbers(records.value[kept]), DAMAGED)
    order = np.lexsort((number, records.offset[kept], key))
    key, offset, number = key[order], records.offset[kept][order], number[order]
    first = np.ones(len(key), dtype=np.bool_)
    first[1:] = (np.diff(key) != 0) | (np.diff(offset) != 0) | (np.diff(number) != 0)
    whole = np.zeros(len(names), dtype=np.bool_)
    read = set(ops.key.codes[log.polls.row].tolist())
    for code, name in enumerate(ops.key.names):
        whole[names.index(name)] = code in read and reads.is_whole(name)
    read_ns = np.full(len(names), NEVER, dtype=np.int64)
    polled = ops.f.equal("poll")
    np.minimum.at(
        read_ns, _recoded(ops.key.codes[polled], ops.key.names, names), ops.invoke_ns[polled]
    )
    missing = tuple(
        f"The final read of {key} at {node} is not whole: {reason}."
        for (node, key), reason in reads.missing.items()
    )
    return Final(
        key=key[first],
        offset=offset[first],
        message=number[first],
        whole=whole,
        read_ns=read_ns,
        missing=missing,
        settled=reads.settled,
    )


def _keys(names: tuple[str, ...], rules: GroupRules) -> Keys:
    topics = tuple(name.rsplit("/", 1)[0] for name in names)
    groups = [group.name for group in rules.groups]
    retry = [groups.index(t[len(RETRY) :]) if t[len(RETRY) :] in groups else -1 for t in topics]
    dead = [groups.index(t[len(DEAD) :]) if t[len(DEAD) :] in groups else -1 for t in topics]
    of_retry = [each if t.startswith(RETRY) else -1 for each, t in zip(retry, topics, strict=True)]
    of_dead = [each if t.startswith(DEAD) else -1 for each, t in zip(dead, topics, strict=True)]
    return Keys(names, topics, np.array(of_retry, np.int32), np.array(of_dead, np.int32))


def _until_death(rows: Rows, lives: Rows) -> Rows:
    """What was not seen to end was over when its member was."""
    highest = max(int(rows.member.max(initial=0)), int(lives.member.max(initial=0)))
    died_ns = np.full(highest + 1, NEVER, dtype=np.int64)
    died_ns[lives.member] = lives.end_ns
    end_ns = np.where(rows.end_ns == NEVER, died_ns[rows.member], rows.end_ns)
    return replace(rows, end_ns=np.maximum(end_ns, rows.begin_ns))


# The ``extra`` texts of consumers' rows, as columns: each distinct text is parsed once.
#
# A consumer's rows say the same few things again and again (who, whose, how it ended), so a
# million deliveries have some hundred different texts. What is no object of the contract
# (docs/reference/consumers.md, section 1) counts as malformed and reads as if nothing were said.


class Extra(msgspec.Struct, frozen=True):
    """All that the ``extra`` of a row of the workload ``group`` may say, polls excepted."""

    member: str = ""
    group: str = ""
    broadcast: bool = False
    orderly: bool = False
    ended: str = ""
    why: str = ""
    held: bool = False
    outcome: str = ""
    reconsumed: int = 0
    tag: str | None = None
    level: int = 0
    delay: int = 0
    seen: int | None = None


@dataclass(frozen=True, slots=True)
class Extras:
    """``codes``: by row, which of the texts it has."""

    codes: Codes
    texts: tuple[Extra, ...]
    malformed: int  # rows

    def words(self, what: Callable[[Extra], str]) -> Words:
        said = [what(text) for text in self.texts]
        names = tuple(dict.fromkeys(said)) or ("",)
        number = {name: code for code, name in enumerate(names)}
        by_text = np.array([number[word] for word in said], dtype=np.int32)
        return Words(by_text[self.codes], names)

    def integers(self, what: Callable[[Extra], int | None], none: int = 0) -> Ints:
        """One of the numbers, as a column; ``none`` where nothing is said."""
        said = [what(text) for text in self.texts]
        by_text = np.array([none if each is None else each for each in said], dtype=np.int64)
        return np.asarray(by_text[self.codes])

    def flags(self, what: Callable[[Extra], bool]) -> Bools:
        """One of the flags, as a column."""
        return np.asarray(np.array([what(text) for text in self.texts], np.bool_)[self.codes])


def read_extras(column: pa.ChunkedArray) -> Extras:
    """Parse a column of JSON texts; a null is an empty object."""
    if not len(column):
        return Extras(np.zeros(0, dtype=np.int32), (Extra(),), 0)
    encoded = pc.dictionary_encode(pc.fill_null(column, "{}")).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0)
    decoder = msgspec.json.Decoder(Extra)
    texts: list[Extra] = []
    damaged: list[int] = []
    for code, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            texts.append(decoder.decode(text))
        except msgspec.MsgspecError:
            texts.append(Extra())
            damaged.append(code)
    codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), dtype=np.int32)
    malformed = int(np.isin(codes, damaged).sum()) if damaged else 0
    return Extras(codes, tuple(texts), malformed)
