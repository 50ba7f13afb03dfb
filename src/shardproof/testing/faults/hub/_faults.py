"""The names of what can go wrong between a server and its client, and the script that says when."""

import collections
import dataclasses
import difflib
import enum
import fnmatch
import math

from shardproof.testing.faults.hub._answers import Answer, Incoming

__all__ = ["OTHER_HOST", "Fault", "Rule", "Script", "known_fault"]

OTHER_HOST = "localhost"
"""The hub calls itself 127.0.0.1: to a client this is somebody else, and yet nobody outside."""


class Fault(enum.StrEnum):
    """The faults, by name; "half" is the first half of the body, unless ``at`` says where."""

    STATUS_401 = "status-401"
    """Unauthorized, instead of the file."""
    STATUS_403 = "status-403"
    """Forbidden, instead of the file."""
    STATUS_404 = "status-404"
    """Not found, though it is there."""
    STATUS_429 = "status-429"
    """Too many requests, with ``Retry-After: 0`` or what ``retry_after`` says."""
    STATUS_500 = "status-500"
    """The server's own error."""
    STATUS_503 = "status-503"
    """Not available, with ``Retry-After: 0`` or what ``retry_after`` says."""
    RETRY_AFTER_ABSURD = "retry-after-absurd"
    """503, to be tried again in 10**20 seconds."""
    RETRY_AFTER_DATE = "retry-after-date"
    """503, to be tried again at a date, one second from now."""
    RETRY_AFTER_GARBAGE = "retry-after-garbage"
    """503, to be tried again ``soon``."""

    CLOSED_BEFORE_HEADER = "closed-before-header"
    """The connection ends, in order, as soon as the request has come."""
    RESET_BEFORE_HEADER = "reset-before-header"
    """The connection is reset as soon as the request has come."""
    RESET_IN_BODY = "reset-in-body"
    """The connection is reset after half of the body."""
    NOT_HTTP = "not-http"
    """The greeting of an SSH server, then the end of the connection."""

    TRUNCATED = "truncated"
    """The right Content-Length, half of the body, the end of the connection."""
    TRUNCATED_WITHOUT_LENGTH = "truncated-without-length"
    """No Content-Length, half of the body, the end of the connection."""
    CHUNKED_CUT = "chunked-cut"
    """A chunked body that ends within a chunk."""
    CHUNKED_BAD_SIZE = "chunked-bad-size"
    """A chunked body whose second chunk has the size ``zz``."""

    LENGTH_TOO_SMALL = "length-too-small"
    """The whole body, and a Content-Length of half of it."""
    LENGTH_TOO_LARGE = "length-too-large"
    """The whole body, and a Content-Length of one more; then the end of the connection."""
    LENGTH_NEGATIVE = "length-negative"
    """The whole body, and ``Content-Length: -1``."""
    LENGTH_TWICE = "length-twice"
    """The whole body, and two Content-Length headers: half of it, and all of it."""
    LENGTH_NOT_A_NUMBER = "length-not-a-number"
    """The whole body, and ``Content-Length: many``."""

    BIT_FLIP = "bit-flip"
    """One bit of the body is wrong: the lowest one of the byte in the middle, or ``at``."""
    HTML_PAGE = "html-page"
    """A web page of exactly the size of the body, with the right status."""
    EMPTY_BODY = "empty-body"
    """200 and no byte, said openly: ``Content-Length: 0``."""
    ENDLESS_BODY = "endless-body"
    """No Content-Length, the body, then zeros until the client goes."""
    GZIP_LIE = "gzip-lie"
    """``Content-Encoding: gzip`` over a body that is not compressed."""
    GZIP_BOMB = "gzip-bomb"
    """``Content-Encoding: gzip``, and 1 MiB that unpacks to 1 GiB of zeros."""

    RANGE_UNASKED = "range-unasked"
    """206 with the first half, for a request without Range."""
    RANGE_WRONG_START = "range-wrong-start"
    """206 from the first byte on, or from the second where the first was asked for."""
    RANGE_WRONG_TOTAL = "range-wrong-total"
    """206 whose Content-Range says that the file has one more byte."""
    RANGE_OTHER_ETAG = "range-other-etag"
    """206 with bytes and ETag of another version of the file: every bit is the other one."""
    RANGE_IGNORED = "range-ignored"
    """200 with the whole file, for a request with Range."""
    RANGE_REFUSED = "range-refused"
    """416, for a range that the file has."""

    REDIRECT_LOOP = "redirect-loop"
    """302 to the same place."""
    REDIRECT_TO_FILE = "redirect-to-file"
    """302 to ``file:///etc/passwd``."""
    REDIRECT_TO_OTHER_HOST = "redirect-to-other-host"
    """302 from 127.0.0.1 to ``localhost``, where the hub gives the file."""
    REDIRECT_WITHOUT_LOCATION = "redirect-without-location"
    """302, and no word where to."""

    HUGE_HEADER = "huge-header"
    """A header line of 1 MiB before the body."""
    UNSAFE_FILE_NAME = "unsafe-file-name"
    """``Content-Disposition: attachment; filename="../../x"`` over the right body."""

    STALL_BEFORE_HEADER = "stall-before-header"
    """Silence, until the client goes or the hub closes."""
    STALL_AFTER_HEADER = "stall-after-header"
    """The header, then silence."""
    STALL_IN_BODY = "stall-in-body"
    """Half of the body, then silence."""
    DRIP = "drip"
    """One byte of the body every 0.2 s, or every ``interval``."""


_AT = {
    Fault.RESET_IN_BODY,
    Fault.TRUNCATED,
    Fault.TRUNCATED_WITHOUT_LENGTH,
    Fault.CHUNKED_CUT,
    Fault.CHUNKED_BAD_SIZE,
    Fault.BIT_FLIP,
    Fault.STALL_IN_BODY,
}
_OPTIONS = {
    "at": _AT,
    "retry_after": {Fault.STATUS_429, Fault.STATUS_503},
    "interval": {Fault.DRIP},
}
_OF_RANGES = {
    Fault.RANGE_WRONG_START,
    Fault.RANGE_WRONG_TOTAL,
    Fault.RANGE_OTHER_ETAG,
    Fault.RANGE_IGNORED,
    Fault.RANGE_REFUSED,
}


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Rule:
    """One line of the script: what goes wrong, for which requests, and how often.

    Attributes:
        pattern: For one of the names that a request has.
        fault: What goes wrong.
        times: How many attempts suffer; None for all.
        after: How many go well before that.
        method: The method of the requests; None for all.
        at: Bytes of the body before the harm is done; None for half of them.
        retry_after: The value of the Retry-After header; None for ``"0"``.
        interval: Seconds between two bytes; None for 0.2.

    Raises:
        TypeError: A number that is none.
        ValueError: An unknown fault, an option that it does not have, a value out of range, a
            method that is not in capitals.
    """

    pattern: str
    fault: Fault
    times: int | None = None
    after: int = 0
    method: str | None = "GET"
    at: int | None = None
    retry_after: str | None = None
    interval: float | None = None

    def __post_init__(self) -> None:
        _refuse_other_than("pattern", self.pattern, str)
        _refuse_other_than("method", self.method, str)
        if self.method and self.method != self.method.upper():
            raise ValueError(f"method: expected {self.method.upper()!r}, found {self.method!r}")
        for name, faults in _OPTIONS.items():
            if getattr(self, name) is not None and self.fault not in faults:
                known = ", ".join(sorted(faults))
                raise ValueError(f"{name}: {self.fault} has no such option; {known} has")
        for name, least in (("times", 1), ("after", 0), ("at", 0)):
            _refuse_count(name, getattr(self, name), least)
        _refuse_other_than("interval", self.interval, float, int)
        if self.interval is not None and not 0 < self.interval < math.inf:
            raise ValueError(f"interval: expected seconds, found {self.interval!r}")
        _refuse_other_than("retry_after", self.retry_after, str)
        if not (self.retry_after or "").isascii() or not (self.retry_after or "").isprintable():
            raise ValueError(f"retry_after: expected a line of ASCII, found {self.retry_after!r}")

    def concerns(self, names: tuple[str, ...], incoming: Incoming, right: Answer) -> bool:
        """Whether this can happen here: what is to go wrong must go right without it."""
        if self.method not in {None, incoming.method}:
            return False
        if not any(fnmatch.fnmatchcase(name, self.pattern) for name in names):
            return False
        if self.fault in _OF_RANGES:
            return right.status == 206
        if self.fault is Fault.RANGE_UNASKED:
            return right.status == 200 and right.part.size > 1
        if self.fault is Fault.REDIRECT_TO_OTHER_HOST:
            return not incoming.headers.get("host", "").startswith(OTHER_HOST)
        return right.status in {200, 206, 302}


class Script:
    """The rules, and how many attempts at each file each of them has seen.

    An attempt is seen by the rules in their order, up to the first that makes it suffer.
    """

    def __init__(self) -> None:
        self._rules: list[Rule] = []
        self._seen: collections.Counter[tuple[Rule, str]] = collections.Counter()

    def add(self, rule: Rule) -> None:
        """Add a rule behind the others."""
        self._rules.append(rule)

    def clear(self) -> None:
        """Let all go well from now on."""
        self._rules.clear()

    def next(self, names: tuple[str, ...], incoming: Incoming, right: Answer) -> Rule | None:
        """Return the rule that this attempt suffers from.

        Args:
            names: By what the request may be called; the last one is counted.
            incoming: The request.
            right: Its right answer.
        """
        for rule in self._rules:
            if rule.concerns(names, incoming, right):
                seen = self._seen[rule, names[-1]]
                self._seen[rule, names[-1]] += 1
                if rule.after <= seen and (rule.times is None or seen < rule.after + rule.times):
                    return rule
        return None


def known_fault(fault: str) -> Fault:
    """Return the fault of this name.

    Raises:
        ValueError: There is none; the nearest names are told.
    """
    try:
        return Fault(fault)
    except ValueError:
        near = difflib.get_close_matches(str(fault), list(Fault), cutoff=0.4)
        hint = f"; near it: {', '.join(near)}" if near else ""
        raise ValueError(f"fault: expected the name of one, found {fault!r}{hint}") from None


def _refuse_other_than(name: str, value: object, *types: type) -> None:
    if value is not None and not isinstance(value, types):
        expected = "a str" if types[0] is str else "a number"
        raise TypeError(f"{name}: expected {expected}, found {type(value).__name__}")


def _refuse_count(name: str, value: object, least: int) -> None:
    if value is None:
        return
    if type(value) is not int:
        raise TypeError(f"{name}: expected an integer, found {type(value).__name__}")
    if value < least:
        raise ValueError(f"{name}: expected at least {least}, found {value}")
