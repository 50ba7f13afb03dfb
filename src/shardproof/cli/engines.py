"""The options by which workers of Dask, or the other ranks of MPI, check the files."""

import contextlib
import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar, cast

import click

from shardproof._base.messages import shown, with_kind
from shardproof.cli import exits, options, output

F = TypeVar("F", bound=Callable[..., Any])

_SECONDS = 10  # that a scheduler has to answer


def engine_options(command: F) -> F:
    """Add the options that name an engine; the command gets its executor."""

    @functools.wraps(command)
    def run(*, dask: str | None, mpi: bool, **how: Any) -> None:
        if mpi and dask:
            raise click.UsageError("expected --dask or --mpi, found both")
        if dask == "":
            raise click.UsageError("--dask: expected an address: is a variable not set?")
        with contextlib.ExitStack() as stack:
            try:
                executor = _of_dask(stack, dask) if dask else _of_mpi(stack) if mpi else None
            except ImportError as error:
                option, package = ("--dask", "distributed") if dask else ("--mpi", "mpi4py")
                problem = f"{option}: it needs the package {package}: {with_kind(error)}"
                raise click.UsageError(problem) from error
            command(executor=executor, **how)

    mpi = options.flag("--mpi", help="Check by the other ranks that mpiexec started.")
    text = "Check by the workers of the Dask scheduler that is there; by default by threads."
    return cast("F", click.option("--dask", metavar="ADDRESS", help=text)(mpi(run)))


def _of_dask(stack: contextlib.ExitStack, address: str) -> Any:
    from distributed import Client  # noqa: PLC0415 - where users have it
    from distributed.comm.addressing import resolve_address  # noqa: PLC0415

    try:
        resolve_address(address)  # or a client of a wrong one waits when it goes
        made: Any = Client
        client = stack.enter_context(made(address, timeout=_SECONDS, set_as_default=False))
    except (OSError, ValueError) as error:
        problem = f"no scheduler answers at '{shown(address)}'"
        exits.end_with(f"--dask: {problem}: {with_kind(error)}", exits.COULD_NOT_CHECK)
    # It would show a traceback of each answer that is on its way when the client closes.
    stack.callback(logging.getLogger("tornado.application").setLevel, logging.CRITICAL)
    if not client.scheduler_info()["workers"]:
        output.warn("--dask: the scheduler has no workers yet; waiting for them")
    return client.get_executor()


def _of_mpi(stack: contextlib.ExitStack) -> Any:
    from mpi4py.futures import MPICommExecutor  # noqa: PLC0415 - where users have it

    executor = stack.enter_context(MPICommExecutor())
    if executor is None:  # another rank, which has served until the first one was done
        raise click.exceptions.Exit(exits.KEPT)
    return executor
