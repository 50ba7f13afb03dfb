"""The command ``shardproof``: `app` puts it together, and knows the module of each command.

Here is the first that it does: take the signals that end it, before it imports what it needs, or an
interrupt would come out as a traceback of an import. What is imported until then is little more
than what Python itself has: not `signal`, which makes enumerations. The version takes no more.
"""

import os

from shardproof import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    import _signal as signal

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # what ends a command in order


def end_at_once(number: int, _: object) -> None:
    """End this process by the code that a shell gives to a program that the signal has ended."""
    os._exit(128 + number)


def take_signals() -> None:
    """End at once from now on; what is ignored, or has another handler, stays so."""
    for number in ENDING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, end_at_once)


def says_version() -> bool:
    """Print the version; return whether it was. What hinders that, the command tells."""
    text = f"shardproof {__version__}\n".encode()
    try:
        return os.write(1, text) == len(text)
    except OSError:
        return False
