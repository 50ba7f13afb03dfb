"""The client that people have of the Hub."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

__all__ = ["hub_client"]


@contextmanager
def hub_client() -> Iterator[ModuleType]:
    """Lend huggingface_hub; close what it keeps open for its next request."""
    import huggingface_hub
    import huggingface_hub.errors
    import huggingface_hub.file_download
    import huggingface_hub.hf_api
    import huggingface_hub.utils

    yield huggingface_hub
    for name in ("close_session", "reset_sessions"):  # since 1.0, and before
        getattr(huggingface_hub.utils, name, lambda: None)()
