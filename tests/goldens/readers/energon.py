"""Samples, as Megatron Energon reads them."""
