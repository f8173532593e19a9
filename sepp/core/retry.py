"""How long a failed job waits for its next attempt: the queue's policy, or what the worker asked
for.

Up to a quarter of the delay is taken off, by a hash of job and attempt: jobs that failed together
do not come back together, and the same failure always waits equally long, also in a replay.
"""

from zlib import crc32

from sepp.core.commands import Directive, Nack
from sepp.core.limits import QueueLimits

# From here on doubling cannot stay below any ceiling a configuration can hold (64 bits).
DOUBLINGS_MAX = 63


def retry_delay_ms(nack: Nack, limits: QueueLimits) -> int:
    """Return the delay before the attempt after `nack.attempt`, in ms; 0: at once."""
    if nack.directive == Directive.DELAY:
        return min(nack.delay_ms, limits.max_schedule_horizon_ms)
    return policy_delay_ms(nack.job_id, nack.attempt, limits)


def policy_delay_ms(job_id: bytes, attempt: int, limits: QueueLimits) -> int:
    """Return the delay the policy of a queue gives after `attempt` failed, jitter taken off."""
    delay_ms = limits.retry_delay_ms
    if not delay_ms:
        return 0
    if limits.retry_is_exponential:
        delay_ms <<= min(attempt - 1, DOUBLINGS_MAX)
    ceiling_ms = min(delay_ms, limits.retry_delay_max_ms, limits.max_schedule_horizon_ms)
    jitter = crc32(job_id + attempt.to_bytes(4, "big"))
    return ceiling_ms - jitter % (ceiling_ms // 4 + 1)
