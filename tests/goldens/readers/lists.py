"""Files that lists tell of."""
