"""Directories of saev's data, whole and damaged, and what a right validator says of them."""
