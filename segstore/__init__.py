"""A crash-safe append-only segment store for small entries with a mutable head and a body written once."""
