"""`sepp-trio completion`: what makes a shell complete our verbs and options."""

from typing import Annotated, Literal

from cyclopts import Parameter

from sepp import exits


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="Which shell.")], /
) -> int:
    """Print a script that completes verbs and options.

    Example: `source <(sepp-trio completion bash)`
    """
    from sepp.cli.app import load_all  # it lists this verb

    print(load_all().generate_completion(shell=shell))
    return exits.OK
