"""Attributes of topics: which there are, and what a change may do (common/TopicAttributes.java,
AttributeUtil.java). A change is "+key=value" and "-key", with commas between them.

Brokers keep them for clients and proxies, who ask for ``message.type``. Queues are as those of
SimpleCQ; the log of a topic with ``cleanup.policy`` COMPACTION keeps every message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shalott.broker.base.errors import BrokerError

LONG_MAX = (1 << 63) - 1


class IllegalAttribute(BrokerError):
    """A change that is none, or that this attribute does not take."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """``values``: one of them is taken; without any, a number from -1 on."""

    values: tuple[str, ...] = ()
    changeable: bool = True

    def check(self, value: str) -> None:
        """Raises IllegalAttribute."""
        if self.values and value not in self.values:
            raise IllegalAttribute(f"value is not in set: [{', '.join(self.values)}]")
        if not self.values and not (value.lstrip("-").isdecimal() and -1 <= int(value) <= LONG_MAX):
            raise IllegalAttribute(f"value is not in range(-1, {LONG_MAX})")


OF_TOPICS: Mapping[str, Attribute] = {
    "queue.type": Attribute(("SimpleCQ",), changeable=False),
    "cleanup.policy": Attribute(("DELETE", "COMPACTION"), changeable=False),
    "message.type": Attribute(("UNSPECIFIED", "TRANSACTION", "FIFO", "MIXED", "DELAY", "NORMAL")),
    "reserve.time": Attribute(),
}


def changes_of(text: str) -> dict[str, str]:
    """Of the header's text: "+key" or "-key" to a value. Raises IllegalAttribute."""
    found: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = part.strip().partition("=")
        if not key:
            continue
        if key[1:] in (known[1:] for known in found):
            raise IllegalAttribute(f"key duplication: {key}")
        if equals and not key.startswith("+"):
            raise IllegalAttribute(f"add/alter attribute format is wrong: {key}")
        if not equals and not key.startswith("-"):
            raise IllegalAttribute(f"delete attribute format is wrong: {key}")
        found[key] = value
    return found


def changed(
    known: Mapping[str, str] | None,
    changes: Mapping[str, str],
    attributes: Mapping[str, Attribute] = OF_TOPICS,
) -> dict[str, str]:
    """What there is after ``changes``; ``known`` is None of what is being made. Raises
    IllegalAttribute."""
    after = dict(known or {})
    for key, value in changes.items():
        name = key[1:]
        attribute = attributes.get(name)
        if known is None and not key.startswith("+"):
            remark = f"only add attribute is supported while creating topic. key: {name}"
            raise IllegalAttribute(remark)
        if attribute is None:
            raise IllegalAttribute(f"unsupported key: {name}")
        if known is not None and not attribute.changeable:
            raise IllegalAttribute(f"attempt to update an unchangeable attribute. key: {name}")
        if key.startswith("+"):
            attribute.check(value)
            after[name] = value
        else:
            after.pop(name, None)
    return after
