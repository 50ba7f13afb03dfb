"""The names of what can go wrong between a server and its client, and the rules that say when."""

import collections
import dataclasses
import enum
import fnmatch
from typing import TypedDict

from shardproof.testing.faults.hub._answers import Answer, Incoming
from shardproof.testing.samples._keywords import expect, expect_number, integer

OTHER_HOST = "localhost"
"""The hub calls itself 127.0.0.1: to a client this is another host, and yet none outside."""


class HubFault(enum.StrEnum):
    """The faults, by name; half is the first half of the body, unless ``at`` says where.

    docs/loopback-hub.md has the table of what the client gets.
    """

    STATUS_401 = "status-401"  # unauthorized, instead of the file
    STATUS_403 = "status-403"  # forbidden, instead of the file
    STATUS_404 = "status-404"  # not found, though it is there
    STATUS_429 = "status-429"  # too many requests; Retry-After: 0, or as said
    STATUS_500 = "status-500"  # the server's own error
    STATUS_503 = "status-503"  # not available; Retry-After: 0, or as said
    RETRY_AFTER_ABSURD = "retry-after-absurd"  # 503, to be tried again in 10**20 seconds
    RETRY_AFTER_DATE = "retry-after-date"  # 503, to be tried again at a date, one second from now
    RETRY_AFTER_GARBAGE = "retry-after-garbage"  # 503, to be tried again soon

    CLOSED_BEFORE_HEADER = "closed-before-header"  # the end, as soon as the request has come
    RESET_BEFORE_HEADER = "reset-before-header"  # a reset, as soon as the request has come
    RESET_IN_BODY = "reset-in-body"  # the connection is reset after half of the body
    NOT_HTTP = "not-http"  # the greeting of an SSH server, then the end of the connection

    TRUNCATED = "truncated"  # the right Content-Length, half of the body, the end of the connection
    TRUNCATED_WITHOUT_LENGTH = "truncated-without-length"  # no length, half of the body, the end
    CHUNKED_TRUNCATED = "chunked-truncated"  # a chunked body that ends within a chunk
    CHUNKED_BAD_SIZE = "chunked-bad-size"  # a chunked body whose second chunk has the size zz

    LENGTH_TOO_SMALL = "length-too-small"  # the whole body, and a Content-Length of half of it
    LENGTH_TOO_LARGE = "length-too-large"  # the whole body, and a Content-Length of one byte more
    LENGTH_NEGATIVE = "length-negative"  # the whole body, and Content-Length: -1
    LENGTH_TWICE = "length-twice"  # the whole body; a Content-Length of half of it, and one of all
    LENGTH_NOT_A_NUMBER = "length-not-a-number"  # the whole body, and Content-Length: many

    FLIPPED = "flipped"  # one bit is wrong: the lowest of the byte in the middle, or at
    HTML_PAGE = "html-page"  # a web page of exactly the size of the body, with the right status
    EMPTY_BODY = "empty-body"  # 200 and no byte, said openly: Content-Length: 0
    ENDLESS_BODY = "endless-body"  # no Content-Length, the body, then zeros until the client goes
    GZIP_LIE = "gzip-lie"  # Content-Encoding: gzip over a body that is not compressed
    GZIP_BOMB = "gzip-bomb"  # Content-Encoding: gzip, and 1 MiB that unpacks to 1 GiB of zeros

    RANGE_UNASKED = "range-unasked"  # 206 with the first half, for a request without Range
    RANGE_WRONG_START = "range-wrong-start"  # 206 from the first byte on, or from the second
    RANGE_WRONG_TOTAL = "range-wrong-total"  # 206 that says that the file has one more byte
    RANGE_OTHER_ETAG = "range-other-etag"  # 206 with bytes and ETag of another version of the file
    RANGE_IGNORED = "range-ignored"  # 200 with the whole file, for a request with Range
    RANGE_REFUSED = "range-refused"  # 416, for a range that the file has

    REDIRECT_LOOP = "redirect-loop"  # 302 to the same place
    REDIRECT_TO_FILE = "redirect-to-file"  # 302 to file:///etc/passwd
    REDIRECT_TO_OTHER_HOST = "redirect-to-other-host"  # 302 to localhost, where it is
    REDIRECT_WITHOUT_LOCATION = "redirect-without-location"  # 302, and no word where to

    HUGE_HEADER = "huge-header"  # a header line of 1 MiB before the body
    UNSAFE_FILE_NAME = "unsafe-file-name"  # Content-Disposition: attachment; filename="../../x"

    STALL_BEFORE_HEADER = "stall-before-header"  # silence, until the client goes or the hub closes
    STALL_AFTER_HEADER = "stall-after-header"  # the header, then silence
    STALL_IN_BODY = "stall-in-body"  # half of the body, then silence
    DRIP = "drip"  # one byte of the body every 0.2 s, or every interval


_OPTIONS = {
    "at": "reset-in-body truncated truncated-without-length chunked-truncated chunked-bad-size "
    "flipped stall-in-body",
    "retry_after": "status-429 status-503",
    "interval": "drip",
}
"""Each option that only some faults have, and these faults."""


class FaultOptions(TypedDict, total=False):
    """When a fault comes, and what only some faults have; `Hub.fault` describes them."""

    nth: int
    times: int | None
    method: str | None
    at: int | None
    retry_after: str | None
    interval: float | None


@dataclasses.dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Rule:
    """What goes wrong, for which requests, and how often; `Hub.fault` says what is refused."""

    match: str
    fault: HubFault
    nth: int = 1
    times: int | None = None
    method: str | None = "GET"
    at: int | None = None
    retry_after: str | None = None
    interval: float | None = None
    # How many attempts at each file came that it could have been for.
    _seen: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter, init=False
    )

    def __post_init__(self) -> None:
        expect("match", self.match, str)
        if self.method is not None:
            expect("method", self.method, str)
            if self.method != self.method.upper():
                raise ValueError(f"method: expected {self.method.upper()!r}, found {self.method!r}")
        for name, faults in _OPTIONS.items():
            if getattr(self, name) is not None and self.fault not in faults.split():
                known = ", ".join(sorted(faults.split()))
                raise ValueError(f"{name}: {self.fault} has no such option; {known} has")
        integer("nth", self.nth, at_least=1)
        for name, least in (("times", 1), ("at", 0)):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name), at_least=least)
        if self.interval is not None:
            expect_number("interval", self.interval)
        if self.retry_after is not None:
            expect("retry_after", self.retry_after, str)
            line = self.retry_after
            if not (line.isascii() and line.isprintable()):
                raise ValueError(f"retry_after: expected a line of ASCII, found {line!r}")

    def meets(self, names: tuple[str, ...], incoming: Incoming, right: Answer) -> bool:
        """Count a request by its last name if it is meant; return whether it suffers."""
        if self.method not in {None, incoming.method}:
            return False
        if not any(fnmatch.fnmatchcase(name, self.match) for name in names):
            return False
        # What is to go wrong must go right without it.
        if self.fault is HubFault.RANGE_UNASKED:
            is_possible = right.status == 200 and right.part.size > 1
        elif self.fault.startswith("range-"):
            is_possible = right.status == 206
        elif self.fault is HubFault.REDIRECT_TO_OTHER_HOST:
            is_possible = not incoming.headers.get("host", "").startswith(OTHER_HOST)
        else:
            is_possible = right.status in {200, 206, 302}
        if not is_possible:
            return False
        self._seen[names[-1]] += 1
        late = self._seen[names[-1]] - self.nth
        return late >= 0 and (self.times is None or late < self.times)
