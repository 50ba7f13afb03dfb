r"""Text from outside, quoted and cut; lists that are shortened.

A name, a path, a header, what another library says: none of it may move the cursor, paint the
terminal, begin a line of its own in a report, or fill a log. So each such text is put into a
message by one of these: `shown` for paths and addresses, `quoted` for all other text,
`told` for exceptions, `plain` for what a server says in a line; `traced` for the exception as a
cause. A test walks the whole source for messages that don't.

Example:
    >>> path, title = "/data/a\nb.bin", "\x1b[2J"
    >>> print(f"'{shown(path)}': expected a name, found {quoted(title)}")
    '/data/a\nb.bin': expected a name, found '\x1b[2J'
"""

import errno
import os
from collections.abc import Callable, Sequence, Sized
from typing import TypeVar

_SHOWN = 20
_LINE = 200
_Case = TypeVar("_Case")
_LONGEST = 4096  # characters; more than any path has, and than any library should say

WRONG_USAGE = (ImportError, NotImplementedError, TypeError, ValueError)
"""What a library raises of what it was given, and not of what it met."""

_NOT_REACHED = {
    errno.ECONNREFUSED,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
    errno.ENETDOWN,
    errno.ENETUNREACH,
}
# Of HTTP clients, which give no number where a connection is not made in time; and of the look for
# a host by its name. By their names: to import them takes long.
_NOT_CONNECTED = {"ConnectError", "ConnectTimeout", "EndpointConnectionError", "gaierror"}


def quoted(value: object, limit: int = 80) -> str:
    """Return untrusted text for a message: ASCII, escaped, cut to about ``limit`` characters."""
    if isinstance(value, (str, bytes)):
        return _cut(ascii(value[:limit]), value, limit)
    return _cut(ascii(value)[:limit], ascii(value), limit)


def shown(path: str | os.PathLike[str], limit: int = _LONGEST) -> str:
    """Return a path or an address for a message, on one line; what can't be printed is escaped."""
    text = os.fspath(path)
    return _cut(_escaped(text[:limit]), text, limit)


def said(error: BaseException) -> str:
    """Return what an exception says, as it says it; it may be of any class, and fail at that."""
    try:
        return str(error)
    except Exception as second:
        return f"it has no text: {type(second).__name__}"


def told(error: BaseException) -> str:
    """Return what an exception says: of one of ours as it is, of any other on one line, cut."""
    text = said(error)
    is_ours = type(error).__module__.partition(".")[0] == __name__.partition(".")[0]
    return printable(text) if is_ours else shown(text)


def traced(error: BaseException) -> BaseException | None:
    """Return an error as the cause of one of ours; its like, where its text is not to be shown."""
    # A traceback and a log print the whole chain as it is, beside our text. But a cause also tells
    # that a look failed, or that what was given is wrong: the like of such an error has its number,
    # or its class and what `told` makes of it. Others have none.
    link: BaseException | None = error
    seen: set[int] = set()
    while link is not None and id(link) not in seen:  # what a traceback of it shows
        seen.add(id(link))
        has_more = hasattr(link, "__notes__") or isinstance(link, BaseExceptionGroup)
        if has_more or told(link) != said(link):
            break
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    else:
        return error
    if isinstance(error, OSError):
        is_known = error.errno in errno.errorcode
        return OSError(error.errno, os.strerror(error.errno or 0)) if is_known else None
    kinds = (kind for kind in WRONG_USAGE if isinstance(error, kind))
    return next((kind(told(error)) for kind in kinds), None)


def is_unreached(error: BaseException | None) -> bool:
    """Whether an error is, or came of, one by which a host can't be reached."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        if isinstance(error, OSError) and error.errno in _NOT_REACHED:
            return True
        if type(error).__name__ in _NOT_CONNECTED:
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


def plain(text: str) -> str:
    """Return a short line of printable ASCII as it is, and anything else quoted and cut."""
    is_plain = len(text) <= _LINE and text.isascii() and text.isprintable()
    return text if is_plain else quoted(text, _LINE)


def with_kind(error: BaseException) -> str:
    """Return the class of another library's error, and the first line of what it says."""
    lines = said(error).strip().splitlines()
    return f"{type(error).__name__}: {plain(lines[0]) if lines else 'no more is known'}"


def listed(title: str, cases: Sequence[_Case], line: Callable[[_Case], str] = str) -> str:
    """Return a title, how many cases it has, and a line for each; of very many only the first."""
    first = "".join(f"\n  - {line(case)}" for case in cases[:_SHOWN])
    more = f"\n  and {len(cases) - _SHOWN} more" if len(cases) > _SHOWN else ""
    return f"{title} ({len(cases)}):{first}{more}"


def joined(texts: Sequence[str]) -> str:
    """Return texts in one line, with semicolons; of very many only the first."""
    more = [f"and {len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    return "; ".join([*texts[:_SHOWN], *more])


def quoted_first(names: Sequence[str]) -> str:
    """Return untrusted names, quoted, with commas; of very many only the first."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(map(quoted, names[:_SHOWN])) + more


def printable(text: str) -> str:
    """Return a text of several lines of which nothing moves the cursor or paints the terminal."""
    return "\n".join(map(_escaped, text.split("\n")))


def _cut(beginning: str, text: Sized, limit: int) -> str:
    return beginning if len(text) <= limit else f"{beginning}... ({len(text)} characters)"


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
