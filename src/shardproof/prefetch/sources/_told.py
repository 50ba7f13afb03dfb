"""What servers and libraries say, for a message: as it is where it is plain, quoted otherwise."""

from shardproof._messages import quoted

__all__ = ["of_error", "plain"]

_LENGTH = 200


def plain(text: str) -> str:
    """Return a short line of printable ASCII as it is, and anything else quoted and cut."""
    is_plain = len(text) <= _LENGTH and text.isascii() and text.isprintable()
    return text if is_plain else quoted(text, _LENGTH)


def of_error(error: Exception) -> str:
    """Return the name of an error of somebody else's, and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {plain(lines[0]) if lines else 'no more is known'}"
