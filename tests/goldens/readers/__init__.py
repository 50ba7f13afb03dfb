"""What reads each golden directory: a module for each room of formats."""

from . import energon, hub, lists, samples, tokens, weights
from ._readers import READERS, Reader

__all__ = ["READERS", "Reader", "energon", "hub", "lists", "samples", "tokens", "weights"]
