"""The progress bar: what it is about may have any name, and the terminal may go."""

import errno
import io
import re
import sys

import pytest

from shardproof._base.progress import reporting


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def drawn(label: str, monkeypatch: pytest.MonkeyPatch) -> str:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("shardproof._base.progress._QUIET_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    with reporting(True, label) as on_progress:
        on_progress(1, 2)
    return terminal.getvalue()


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("[link=http:x]y[/b]", "[link=http:x]y[/b]"),
        ("[red]a:smile:\\[b]\\", "[red]a:smile:\\[b]\\"),
        ("{task.total} %s été/日本", "{task.total} %s été/日本"),
        ("\u202ea\u2066\u200b", r"\u202ea\u2066\u200b"),
        ("a\x1b]0;b\x07\nc", r"a\x1b]0;b\x07\nc"),
        ("x" * 100, f"{'x' * 60}... (100 characters)"),
    ],
)
def test_a_name_is_drawn_as_it_is_and_nothing_of_it_is_obeyed(
    label: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = drawn(label, monkeypatch)
    assert text in shown
    assert "1/2" in shown
    assert "\x1b]" not in shown


@pytest.mark.parametrize(("in_bytes", "amount"), [(False, "3000/4000"), (True, "3.0/4.0 kB")])
def test_it_tells_the_rate_and_the_time_left(in_bytes, amount, monkeypatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("shardproof._base.progress._QUIET_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    with reporting(True, "shards", in_bytes=in_bytes) as on_progress:
        for done in (1000, 2000, 2500, 3000):
            on_progress(done, 4000)
    last = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", terminal.getvalue()).split("\r")
    line = next(each for each in reversed(last) if amount in each)
    assert re.search(r"\d:\d\d:\d\d", line), line
    assert re.search(r"B/s" if in_bytes else r"[\de+]/s", line), line


class GoneTerminal(Terminal):
    """A terminal that hangs up after some writes."""

    def __init__(self, n_writes: int) -> None:
        super().__init__()
        self.n_left = n_writes

    def write(self, text: str) -> int:
        self.n_left -= 1
        if self.n_left < 0:
            raise OSError(errno.EIO, "Input/output error")
        return super().write(text)


@pytest.mark.parametrize("n_writes", [0, 1, 3, 7])
def test_a_terminal_that_is_gone_is_no_reason_to_end(
    n_writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, stdout = GoneTerminal(n_writes), sys.stdout
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("shardproof._base.progress._QUIET_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm-256color")
    with reporting(True, "shards") as on_progress:
        for done in range(9):
            on_progress(done, 9)
        n_tried = terminal.n_left
        on_progress(9, 9)
    assert terminal.n_left <= n_tried < 0
    assert (sys.stdout, sys.stderr) == (stdout, terminal)
    with pytest.raises(ValueError, match="of the work"):
        draw_and_fail()


def draw_and_fail() -> None:
    with reporting(True, "shards") as on_progress:
        on_progress(1, 9)
        raise ValueError("of the work")
