"""A call fails: the outcome is the right one, or that nobody could look."""

from pathlib import Path

import pytest
from attacks.failing import Subject, attack, cases_of, run_clean
from attacks.failing_subjects import COMMANDS, READERS, WRITERS
from attacks.tally import Tally

FEW = 6
"""So many cases of each subject are tried in the gate."""


def try_(subject: Subject, path: Path, tally: Tally) -> None:
    root, template = path / "root", path / "template"
    template.mkdir()
    clean = run_clean(subject, root, template)
    for case in tally.sample(cases_of(clean), FEW):
        run, harms = attack(subject, root, template, clean, case)
        tally.count(run is None or bool(run.failed))
        for kind, what in harms:
            tally.harm(kind, what)


def by_name(subjects: tuple[Subject, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("subject", subjects, ids=lambda subject: subject.name)


@pytest.mark.attack("a call fails: readers")
@by_name(READERS)
def test_a_reader_is_right_or_could_not_look(subject: Subject, tmp_path: Path, tally: Tally) -> None:
    try_(subject, tmp_path, tally)


@pytest.mark.attack("a call fails: commands")
@by_name(COMMANDS)
def test_a_command_is_right_or_could_not_look(subject: Subject, tmp_path: Path, tally: Tally) -> None:
    try_(subject, tmp_path, tally)


@pytest.mark.attack("a call fails: writers")
@by_name(WRITERS)
def test_a_writer_is_right_or_could_not(subject: Subject, tmp_path: Path, tally: Tally) -> None:
    try_(subject, tmp_path, tally)
