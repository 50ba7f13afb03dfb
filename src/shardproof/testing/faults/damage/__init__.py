"""Harm to one file, done and taken back."""

from shardproof.testing.faults.damage._damage import Damage, DamageDone, damage, damaged
from shardproof.testing.faults.damage._kinds import DamageKind

__all__ = [
    "Damage",
    "DamageDone",
    "DamageKind",
    "damage",
    "damaged",
]
