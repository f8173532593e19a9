"""What every fuzz has for a command line: how long, and the seed, which it tells first."""

import argparse
import random


def seed_and_seconds(description: str, *, seconds: float = 10.0) -> tuple[int, float]:
    """Read the command line, print the seed, and return both.

    Args:
        description: The docstring of the module; its first line is shown by --help.
        seconds: When none are given.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    options = parser.parse_args()
    print("seed", options.seed, flush=True)
    return options.seed, options.seconds
