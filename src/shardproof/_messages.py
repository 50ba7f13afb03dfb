"""Text from outside, quoted and cut for a message; lists that are shortened."""

from collections.abc import Sequence

__all__ = ["listed", "printable", "quoted"]

_SHOWN = 20


def quoted(text: str, limit: int = 80) -> str:
    """Return untrusted text for a message: ASCII, escaped, cut to about ``limit`` characters."""
    shown = ascii(text[:limit])
    return shown if len(text) <= limit else f"{shown}... ({len(text)} characters)"


def listed(title: str, lines: Sequence[str]) -> str:
    """Return a title, how many cases it has, and a line for each; of very many only the first."""
    shown = "".join(f"\n  - {line}" for line in lines[:_SHOWN])
    more = f"\n  and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return f"{title} ({len(lines)}):{shown}{more}"


def printable(text: str) -> str:
    """Return text whose control characters can't move the cursor or paint the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
