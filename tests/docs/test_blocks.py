"""What is run of a page, and what is written there."""

import pytest

from tests.helpers.pages import play

PAGE = """\
```console
$ echo a
b
$ echo 'two
> lines' >&2; echo "took 3.25 s"
two
lines
took 0.10 s
$ cd /data && pwd
```

<!-- run: echo kept > file -->
```python title="made.py"
print("/scratch/a")
```

```python
import made

with open("file") as file:
    print(file.read(), end="")
```

```
old
```

<!-- not run: it would fail -->
```sh
false
```

```
a drawing
```
"""


def test_a_page_gets_what_is_printed(scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(".")
    now = play(PAGE, scene)
    wanted = PAGE.replace("\nb\n", "\na\n").replace("pwd\n", "pwd\n/data\n")
    assert now == wanted.replace("old\n", "/scratch/a\nkept\n")
    monkeypatch.delitem(__import__("sys").modules, "made")


def test_a_script_that_fails_is_no_page(scene) -> None:
    with pytest.raises(AssertionError, match="no-such"):
        play("```sh\ncat no-such\n```\n", scene)
    with pytest.raises(ZeroDivisionError):
        play("```python\n1 / 0\n```\n", scene)


@pytest.mark.parametrize("kind", ["python", "console", "sh"])
def test_what_says_why_it_is_not_run_is_not(kind: str, scene) -> None:
    text = f"<!-- not run: it would fail -->\n```{kind}\n$ exit 1\nno\n```\n"
    assert play(text, scene) == text
