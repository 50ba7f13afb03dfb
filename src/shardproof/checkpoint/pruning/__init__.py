"""Remove old checkpoints, and what interrupted processes left beside them."""
