"""Formats of plain files that nothing lists: a module each, found by listing this folder."""

from importlib import import_module
from pkgutil import iter_modules

FORMATS = tuple(import_module(f"{__name__}.{each.name}").FORMAT for each in iter_modules(__path__))
