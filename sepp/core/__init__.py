"""The queue itself, without clock, randomness, thread, file, socket or await: commands in, outcomes and writes out."""
