"""A message's properties: "key 0x01 value 0x02 ..." on the wire and in the log."""

from __future__ import annotations

UNIQ_KEY = "UNIQ_KEY"  # the id that the producer's client gave it
KEYS = "KEYS"
TAGS = "TAGS"
DELAY = "DELAY"
WAIT = "WAIT"
RETRY_TOPIC = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
REAL_TOPIC = "REAL_TOPIC"
REAL_QID = "REAL_QID"


def properties_of(text: str) -> dict[str, str]:
    """What is no pair is left out."""
    pairs = (pair.partition("\x01") for pair in text.split("\x02"))
    return {key: value for key, separator, value in pairs if separator}


def properties_text(properties: dict[str, str]) -> str:
    return "".join(f"{key}\x01{value}\x02" for key, value in properties.items())
