"""The queue itself, sans-IO: commands and clock readings in, outcomes and writes out."""
