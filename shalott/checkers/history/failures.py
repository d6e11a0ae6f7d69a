"""What the error of a failed operation says: was it tried, and refused for what it found?

A compare-and-set that failed tells something about the register only if the comparison was made.
Databases, their clients and Jepsen's tests have words of their own for that; here they are by their
parts. An error with words of both kinds, or of none, leaves it open.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from typing import Final


class Said(Enum):
    NOTHING = "nothing"  # it may have been compared, or not
    COMPARED = "compared"  # what it expected was not there
    UNTRIED = "untried"  # refused, or given up, before it was compared


# Words of an error, its letters small, everything between them one hyphen.
_COMPARED: Final = re.compile(
    r"not-equal|unequal|not-eq\b|precondition|pre-condition|condition-(?:al-)?(?:check-)?(?:not-)?"
    r"(?:failed|met|false)|conditional-?check|(?:cas|compare|comparison|check|test)-(?:and-set-)?"
    r"(?:fail|false|mismatch)|mismatch|(?:did-not|does-not|doesnt|didnt|no|not)-match"
    r"|(?:wrong|unexpected|different|other|stale|old)-(?:current-)?(?:value|version|revision)"
    r"|bad-version|version-(?:differs|changed|conflict)|value-(?:differs|changed|was|is|not)"
    r"|(?:key|value|node|znode|document|row)-(?:was-)?(?:changed|modified|exists|not-exist)"
    r"|key-not-found|no-such-key|no-row|zero-rows|0-rows|not-applied|did-not-apply|not-swapped"
    r"|did-not-update|nothing-(?:was-)?updated|unmodified|differs|compare-failed"
)
_UNTRIED: Final = re.compile(
    r"unavailable|no-leader|not-(?:the-)?leader|leader-(?:changed|lost|unknown|election)"
    r"|without-(?:a-)?leader|leaderless|no-(?:known-)?(?:primary|master|quorum|majority)|not-(?:the-)"
    r"?(?:primary|master)|not-writable|lost-(?:quorum|leader)|quorum-(?:lost|not)|time-?d?-?out"
    r"|deadline|refused|reset-by|broken-pipe|unreachable|unknown-host|no-route|no-(?:conns?"
    r"|connections?|nodes?|hosts?|host-available|brokers?|servers?|route|address)\b"
    r"|not-connected|disconnect|conn(?:ection)?-(?:lost|closed|refused|failed|reset|loss|error"
    r"|timeout|aborted)|could-not-connect|cannot-connect|cant-connect|socket|network|closed|\bdown\b"
    r"|shutting-down|shut-?down|stopp(?:ed|ing)|start(?:ing|ed)-up|starting|restarting|booting"
    r"|not-(?:ready|started|running|initiali[sz]ed|available|sent|tried|attempted|yet-ready)"
    r"|never-(?:sent|tried)|unsent|before-send|read-?only|overload|too-(?:many|busy)|\bbusy\b"
    r"|throttl|rate-limit|back-?off|circuit|pool-|rejected|queue-full|not-enough|too-few|in-sync"
    r"|denied|unauthori[sz]ed|forbidden|authenticat|session-(?:expired|lost)|no-session|cancel"
    r"|interrupted|abort|rolled-?back|rollback|conflict|deadlock|serializ|restart-transaction|retry"
    r"|lock-wait|could-not-(?:send|get|acquire)|electi(?:on|ng)|partition|paused|fenced|step(?:ped)?"
    r"-down|crashed|dead|dns|tls|handshake|503|504|429"
)
_BETWEEN: Final = re.compile(r"[^a-z0-9]+")
_HUMPS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


@lru_cache(maxsize=1024)  # a history has few different errors
def what_it_says(error: str) -> Said:
    """``error``: as the file has it, "" for none."""
    words = _BETWEEN.sub("-", _HUMPS.sub("-", error).lower())
    is_compared = _COMPARED.search(words) is not None
    if is_compared == (_UNTRIED.search(words) is not None):
        return Said.NOTHING
    return Said.COMPARED if is_compared else Said.UNTRIED
