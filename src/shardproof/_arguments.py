"""Refuse wrong arguments of public functions, before any work, with one short `TypeError`."""

from beartype import BeartypeConf, BeartypeViolationVerbosity, beartype

__all__ = ["checked"]

checked = beartype(
    conf=BeartypeConf(
        violation_param_type=TypeError,
        violation_verbosity=BeartypeViolationVerbosity.MINIMAL,
    )
)
"""The decorator for public functions; not for per-file loops, nor for data from disk."""
