"""Formats that list digests of any files: SHA256SUMS and its kin, BagIt, DVC, Croissant, ..."""
