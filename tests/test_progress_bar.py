"""The progress bar: what it is about may have any name."""

import io
import sys

import pytest

from shardproof._progress import bar


class Terminal(io.StringIO):
    """A terminal that keeps what is drawn on it."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def drawn(label: str, monkeypatch: pytest.MonkeyPatch) -> str:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr("shardproof._progress._QUIET_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    with bar(label) as on_progress:
        on_progress(1, 2)
    return terminal.getvalue()


@pytest.mark.parametrize(
    ("label", "text"),
    [
        ("a[/b].bin", "a[/b].bin"),
        ("[link=http:x]y", "[link=http:x]y"),
        ("[red]a:smile:", "[red]a:smile:"),
        ("a\\[b]\\", "a\\[b]\\"),
        ("{task.total} %s", "{task.total} %s"),
        ("été/日本.bin", "été/日本.bin"),
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
