"""Requests to a loopback hub, by the standard library or byte for byte."""

import contextlib
import http.client
import socket
from collections.abc import Iterator
from typing import NamedTuple

from shardproof.testing.faults import Hub

DEADLINE = 30.0  # seconds; only a hang is as long


class Got(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes


@contextlib.contextmanager
def connected(hub: Hub) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection(hub.url.removeprefix("http://"), timeout=DEADLINE)
    with contextlib.closing(connection):
        yield connection


def ask(client, path, method="GET", **headers) -> Got:
    """Ask for a path or an address, and wait for the whole answer."""
    if isinstance(client, Hub):
        with connected(client) as connection:
            return ask(connection, path.removeprefix(client.url), method, **headers)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    client.request(method, path, headers=names)
    response = client.getresponse()
    return Got(response.status, response.headers, response.read())


def dial(hub: Hub) -> socket.socket:
    address = ("127.0.0.1", int(hub.url.rpartition(":")[2]))
    return socket.create_connection(address, timeout=DEADLINE)
