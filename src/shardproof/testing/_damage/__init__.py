"""Harm to one file, done and taken back."""

from shardproof.testing._damage._damage import Damage, DamageDone, damage, damaged
from shardproof.testing._damage._kinds import DamageKind

__all__ = [
    "Damage",
    "DamageDone",
    "DamageKind",
    "damage",
    "damaged",
]
