"""Blocks of documentation pages: run as shown, in the order shown, they print what is shown."""

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.helpers import ROOT

__all__ = ["BLOCK", "PAGES", "Scene", "as_shown", "play"]

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

BLOCK = re.compile(
    r"^<!-- run: (?P<hidden>[^\n]+) -->$|"
    r'(?P<skip><!-- not run: [^\n]+ -->\n)?^```(?P<kind>\w*)(?: title="(?P<title>[^"]+)")?\n'
    r"(?P<text>.*?)^```\n(?:\n```(?:text)?\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
"""A fenced block, and the one without a language right after it: what it prints; or a command that
readers do not see, in a comment."""

COMMAND = re.compile(r"^\$ (?P<text>.*(?:\n> .*)*)\n(?P<output>(?:(?!\$ ).*\n)*)", re.MULTILINE)

PLACES = re.compile(r"(?<![\w./:~-])/(?:backup|data|home|project|scratch|tmp)\b")
"""Directories of the machine of the pages."""

UNSTABLE = {
    r"\b\d+(\.\d+)? ?(ms|s|min|[kMG]i?B/s)\b": "TIME",  # seconds, and rates
    r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ": "WHEN",
    r"/pytest-of-\w+/pytest-\d+": "/pytest",
    r" *\b\d+ Killed +": " Killed ",  # of bash
    r"(?m)^[=_]+ | [=_]+$": "",  # pytest centres its titles
    r" {2,}(?=\[ *\d+%\])": " ",
}
"""What two runs print differently. Nothing else may."""


@dataclass(frozen=True)
class Scene:
    """A machine like that of a page: its directories are below `root`, and so are commands."""

    root: Path
    here: dict[str, str] = field(default_factory=dict)
    """What the page shows, and what stands for it here: addresses, say."""
    env: dict[str, str] = field(default_factory=dict)
    names: dict[str, object] = field(default_factory=dict)
    """Names of its Python, which blocks add to."""

    def place(self, path: str) -> Path:
        """Return the directory that stands for a path of the page; make those above it."""
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def made(self, text: str) -> str:
        """Return a command or code of the page as it runs here."""
        text = PLACES.sub(lambda place: f"{self.root}{place[0]}", text)
        for shown, real in self.here.items():
            text = text.replace(shown, real)
        return text

    def shown(self, text: str) -> str:
        """Return what was printed here as the page shows it."""
        for shown, real in self.here.items():
            text = text.replace(real, shown)
        return text.replace(str(self.root), "")

    def run(self, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command line by bash: first in /data, then where the last one ended."""
        cwd = self.root / "cwd"
        bin_dir = Path(sys.executable).parent
        env = {
            **{name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")},
            "COLUMNS": "80",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "LC_ALL": "C.UTF-8",
            "HOME": str(self.root / "home/me"),
            "TMPDIR": str(self.root / "tmp"),
            "PATH": f"{self.root / 'bin'}:{bin_dir}:{os.environ['PATH']}",
            **self.env,
        }
        return subprocess.run(
            ["bash", "-euc", f"trap 'pwd > {cwd}' EXIT; {self.made(command)}"],
            cwd=cwd.read_text().strip() if cwd.exists() else self.root / "data",
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,  # seconds, of a busy machine
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the pages of the documentation have what their commands print now."""
    text = "Write what commands print now into the documentation."
    parser.addoption("--update-pages", action="store_true", help=text)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A machine with a checkout in ~/shardproof; its directory /data is this process' too."""
    for name in ("data", "home/me", "tmp", "bin"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home/me/shardproof").symlink_to(ROOT)
    monkeypatch.chdir(tmp_path / "data")
    return Scene(tmp_path.resolve())


def stable(text: str) -> str:
    for pattern, stands in UNSTABLE.items():
        text = re.sub(pattern, stands, text)
    return text.rstrip()


def play(text: str, scene: Scene) -> str:
    """Run all blocks of a page in order; return the page with the output that they have now."""
    return BLOCK.sub(lambda block: _played(block, scene), text)


def as_shown(page: Path, scene: Scene, config: pytest.Config) -> None:
    """Fail if a block of a page prints something else; ``--update-pages`` writes it there."""
    text = page.read_text()
    now = play(text, scene)
    if config.getoption("update_pages"):
        page.write_text(now)
    else:
        assert now == text, f"{page}: pytest tests/docs --update-pages writes what is printed now"


def _played(block: re.Match[str], scene: Scene) -> str:
    if block["hidden"]:
        _script(f"({block['hidden']})", scene)
    elif block["skip"]:
        return block[0]
    elif block["title"]:
        scene.place(f"data/{block['title']}").write_text(scene.made(block["text"]))
    elif block["kind"] == "console":
        commands = COMMAND.sub(lambda command: _command(command, scene), block["text"])
        return block[0].replace(block["text"], commands)
    elif block["kind"] in {"python", "sh"}:
        run = _python if block["kind"] == "python" else _script
        printed = scene.shown(run(block["text"], scene))
        if block["output"] is not None:
            start = block[0].removesuffix(f"{block['output']}```\n")
            return f"{start}{_kept(block['output'], printed)}```\n"
    return block[0]


def _command(command: re.Match[str], scene: Scene) -> str:
    line = re.sub(r"\n> ", "\n", command["text"])
    printed = scene.shown(scene.run(line).stdout)
    return f"$ {command['text']}\n{_kept(command['output'], printed)}"


def _kept(old: str, new: str) -> str:
    """What a page says already, if that is the same but for what two runs print differently."""
    return old if stable(old) == stable(new) else new.rstrip() + "\n" * bool(new.strip())


def _script(text: str, scene: Scene) -> str:
    done = scene.run(text)
    assert done.returncode == 0, f"{text}\n{done.stdout}"
    return done.stdout


def _python(text: str, scene: Scene) -> str:
    with _environment(scene), contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(scene.made(text), "<page>", "exec"), scene.names)
    return printed.getvalue()


@contextlib.contextmanager
def _environment(scene: Scene) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in scene.env.items():
            patch.setenv(name, value)
        yield
