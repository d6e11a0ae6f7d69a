"""Json: what a JSON document holds once it is decoded.

Where such a document enters, its values have this type until they are looked at or converted into
a struct (``msgspec.convert``); ``Any`` would switch the type checker off for all that follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias, Union

Json: TypeAlias = Union[None, bool, int, float, str, "Sequence[Json]", "Mapping[str, Json]"]
JsonObject: TypeAlias = Mapping[str, Json]
