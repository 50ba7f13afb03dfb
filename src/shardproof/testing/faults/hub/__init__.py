"""A server on the loopback that serves shards, and does to their downloader what networks do.

::

    from shardproof.testing.faults.hub import Fault, serve_hub

    with serve_hub() as hub:
        url = hub.put("data/train-00000.bin", b"...")
        hub.fault("data/train-*", Fault.RESET_IN_BODY, times=1)
        my_project.download(url, path)
        assert path.read_bytes() == b"..."
        assert [request.fault for request in hub.requests] == ["reset-in-body", None]

It answers as a web server does, with ranges, entity tags and connections that are kept, and, for
files that are put into a repository, as the Hugging Face Hub does.
"""

from shardproof.testing.faults.hub._faults import Fault
from shardproof.testing.faults.hub._hub import Hub, serve_hub
from shardproof.testing.faults.hub._log import HubRequest

__all__ = [
    "Fault",
    "Hub",
    "HubRequest",
    "serve_hub",
]
