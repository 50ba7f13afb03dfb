"""Which module's lock is held while which other one is taken; to be run with what to import."""

import importlib._bootstrap as bootstrap
import json
import sys

held: list[str] = []
taken: set[tuple[str, str]] = set()


class Noted(bootstrap._ModuleLockManager):
    def __enter__(self) -> None:
        if self._name not in held:
            taken.update((name, self._name) for name in held)
        held.append(self._name)
        super().__enter__()

    def __exit__(self, *args: object) -> None:
        super().__exit__(*args)
        held.pop()


if __name__ == "__main__":
    bootstrap._ModuleLockManager = Noted
    for module in sys.argv[1:]:
        __import__(module)
        if not module.startswith("shardproof.testing"):  # of which no thread of the library asks
            for name in getattr(sys.modules[module], "__all__", ()):  # some are imported only now
                getattr(sys.modules[module], name)
    ours = [pair for pair in taken if all(name.startswith("shardproof") for name in pair)]
    json.dump(ours, sys.stdout)
