"""The forms of a report. Text from outside is made printable, then escaped as each form asks."""

import base64
import hashlib
import html
import importlib.resources
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from shardproof._base.messages import shown
from shardproof.rendering._survey import STATES, FileState, Survey
from shardproof.report import FindingKind

if TYPE_CHECKING:
    from rich.text import Text

MARK = "written by shardproof report"  # begins each form: such a file may be written anew
_MOST_SHOWN = 20
_LETTERS = dict(zip(STATES, "·?MEURIWSTDX+!", strict=True))
_STYLES = dict.fromkeys(STATES, "bold red") | {"as-expected": "green", "unproven": "bright_black"}


def _words(file: FileState) -> tuple[str, str, str] | None:
    """Return what was expected, what was found, and what to do."""
    if (each := file.finding) is None:
        return None
    return shown(each.expected), shown(each.found), shown(each.advice)


def page(survey: Survey) -> bytes:
    """Return a page of HTML that needs nothing else: a map, ages, a list of all files."""
    report, files, change = survey.report, survey.files, survey.change
    name, n = shown(report.path.name), report.n_findings
    title = f"{name}: {n} finding{'s' * (n != 1)}" if n else f"{name}: as expected"
    number = {state: n for n, state in enumerate(STATES)}
    n_of, index = Counter(f.state for f in files), {f.name: n for n, f in enumerate(files)}
    data = {
        "title": title,
        "path": shown(report.path),
        "seconds": survey.seconds,
        "looked_at": survey.looked_at,
        "kinds": [(state, title, n_of[state]) for state, title in STATES.items()],
        "names": [shown(file.name) for file in files],
        "states": [number[file.state] for file in files],
        "sizes": [file.size for file in files],
        "used": [file.used and round(file.used) for file in files],
        "details": {n: _words(file) for n, file in enumerate(files) if file.finding},
        "since": change
        and {
            "broke": [index[name] for name in change.broke],
            "healed": [index[name] for name in change.healed],
            "notes": change.notes,
        },
    } | {key: getattr(report, key) for key in ("format", "level", "n_files", "n_proven")}
    template = importlib.resources.files(__package__).joinpath("page.html").read_text("utf-8")
    policy = ["default-src 'none'", "base-uri 'none'", "form-action 'none'"]
    for tag, text in re.findall(r"<(style|script)>(.*?)</\1>", template, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        policy.append(f"{tag}-src 'sha256-{digest}'")
    said = {
        "policy": "; ".join(policy),
        "title": html.escape(title),
        # In ASCII, in which nothing ends the element.
        "data": json.dumps(data, separators=(",", ":")).replace("<", r"\u003c"),
    }
    filled = re.sub(r"\{(policy|title|data)\}", lambda match: said[match[1]], template)
    return filled.encode(errors="backslashreplace")


def junit(survey: Survey) -> bytes:
    """Return XML of JUnit: a test for each file, which fails if that is not as expected."""
    suite = ElementTree.Element("testsuite", name=shown(survey.report.path))
    n_of = Counter[str]()
    for file in survey.files:
        case = ElementTree.SubElement(suite, "testcase", name=shown(file.name), time="0")
        case.set("classname", f"shardproof.{shown(survey.report.format)}")
        if file.state not in {"as-expected", "unproven"}:
            tag = "error" if file.state == "unseen" else "failure"
            n_of[tag] += 1
            expected, found, advice = _words(file) or ("a sound file", "another finding", "")
            result = ElementTree.SubElement(case, tag, type=file.state)
            result.set("message", f"expected {expected}, found {found}")
            result.text = advice
    suite.attrib |= {"tests": f"{len(survey.files)}", "time": f"{survey.seconds:.3f}"}
    suite.attrib |= {"failures": f"{n_of['failure']}", "errors": f"{n_of['error']}"}
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    head = f'<?xml version="1.0" encoding="utf-8"?>\n<!-- {MARK} -->\n'
    return head.encode() + ElementTree.tostring(suites)  # in ASCII


def github(survey: Survey) -> Iterator[str]:
    """Yield annotations of a workflow: one for each kind, since ten of a step are shown."""
    for kind, n in survey.report.counts.items():
        findings = [each for each in survey.report.findings if each.kind is kind][:_MOST_SHOWN]
        lines = [f"{shown(e.path)}: {shown(e.found)}; {shown(e.advice)}" for e in findings]
        lines += [f"and {n - len(lines)} more"] * (n > len(lines))
        text = "\n".join(lines).replace("%", "%25").replace("\n", "%0A")
        yield f"::error title={kind.heading} ({n})::{text}"


def prometheus(survey: Survey) -> bytes:
    """Return a text file for the collector of Prometheus' node exporter."""
    report = survey.report
    about = {"path": str(report.path), "format": report.format, "level": report.level}
    escape = str.maketrans({"\\": r"\\", '"': r"\""})
    labels = ",".join(f'{k}="{shown(v).translate(escape)}"' for k, v in about.items())
    used = (file.used for file in survey.files if file.used is not None)
    counts = report.counts
    kinds: dict[str, float] = {f'{labels},kind="{k}"': counts.get(k, 0) for k in FindingKind}
    gauges: dict[str, tuple[str, dict[str, float]]] = {
        "findings": ("Files that are not as expected.", kinds),
        "files": ("Files that are expected.", {labels: report.n_files}),
        "unproven_files": ("Files with nothing to verify.", {labels: len(report.unproven)}),
        "unseen_files": ("Files that could not be checked.", {labels: report.n_unseen}),
        "exit_code": ("Exit code of the check.", {labels: report.exit_code}),
        "duration_seconds": ("Time that the check took.", {labels: survey.seconds}),
        "timestamp_seconds": ("When the check was made.", {labels: survey.looked_at}),
        "oldest_use_timestamp_seconds": (
            "When the file was used that was not used for longest.",
            {labels: min(used, default=math.nan)},
        ),
    }
    lines = [f"# {MARK}"]
    for name, (text, samples) in gauges.items():
        lines += [f"# HELP shardproof_{name} {text}", f"# TYPE shardproof_{name} gauge"]
        lines += [f"shardproof_{name}{{{key}}} {value}" for key, value in samples.items()]
    return "\n".join([*lines, ""]).encode(errors="backslashreplace")


def terminal_map(survey: Survey, width: int, height: int) -> "Text":
    """Return a map of at most so many places: a letter for each file, or the worst of several."""
    from rich.text import Text  # noqa: PLC0415 - takes long

    states, text, worst = [file.state for file in survey.files], Text(), [*STATES].index
    n_each = -(-len(states) // (width * height)) or 1
    places = [max(states[at : at + n_each], key=worst) for at in range(0, len(states), n_each)]
    for at, state in enumerate(places):
        text.append(_LETTERS[state] + "\n" * (at % width == width - 1), _STYLES[state])
    text.append("\n" * (len(places) % width > 0))
    if n_each > 1:
        text.append(f"Each letter stands for {n_each} files, and shows the worst.\n")
    for state, n in sorted(Counter(states).items(), key=lambda each: worst(each[0])):
        text.append(_LETTERS[state], _STYLES[state]).append(f" {STATES[state]} ({n})\n")
    return text
