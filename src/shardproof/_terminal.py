"""Untrusted text on a terminal."""

__all__ = ["printable"]


def printable(text: str) -> str:
    """Return text whose control characters can't move the cursor or paint the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
