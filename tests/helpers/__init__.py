"""What tests of several rooms share.

The first line of each says what it is for.
"""

from pathlib import Path

__all__ = ["ROOT"]

ROOT = Path(__file__).parents[2]
"""The checkout."""
