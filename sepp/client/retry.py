"""When a failed call is made again; and, quite another thing, when a failed job is."""

import random
from datetime import timedelta
from typing import ClassVar, Final, Literal

from attrs import field, frozen

from sepp.client.errors import KEYLESS_ENQUEUE_RETRYABLE_CODES, RETRYABLE_CODES
from sepp.rpc.grpc import RpcError


def _at_least_one(value: int) -> int:
    return max(1, value)


def _at_least_once(value: float) -> float:
    return max(1.0, value)


@frozen
class RetryPolicy:
    """How often a call is made that meets a passing trouble. By default once: no retry.

    It holds for all calls but `reserve`, which is a wait anyway, and `drain_dead_letters`, whose
    answer exists only once. What is certain not to have reached the server is sent again by any
    policy with `max_attempts` above 1. An enqueue with a job that has no idempotency key is not
    sent again after a broken connection or a passed deadline: the job may be stored already.

    Args:
        max_attempts: Calls in all, from 1; lower values count as 1.
        initial_backoff: The wait before the second call.
        max_backoff: The longest wait.
        multiplier: Growth from wait to wait, from 1.
        jitter: Shorten each wait by up to a half, at random, so that clients spread out.
    """

    max_attempts: int = field(default=1, converter=_at_least_one)
    initial_backoff: timedelta = timedelta(milliseconds=100)
    max_backoff: timedelta = timedelta(seconds=10)
    multiplier: float = field(default=2.0, converter=_at_least_once)
    jitter: bool = True

    def wait_s(self, failures: int) -> float:
        """Return how many seconds to wait after that many failed calls."""
        longest = self.max_backoff.total_seconds()
        # Beyond this many doublings every sensible wait has reached its limit.
        power = min(failures - 1, 64)
        wait = min(self.initial_backoff.total_seconds() * self.multiplier**power, longest)
        return wait * random.uniform(0.5, 1.0) if self.jitter else wait


def may_repeat(error: RpcError, *, is_repeatable: bool) -> bool:
    """Return whether a failed call may be made again.

    Args:
        is_repeatable: Making it twice does no harm.
    """
    if error.is_unprocessed:
        return True
    if is_repeatable:
        return error.code in RETRYABLE_CODES
    # Only what the server says itself: the same code of a broken connection leaves open whether the
    # jobs are stored.
    return error.is_answer and error.code in KEYLESS_ENQUEUE_RETRYABLE_CODES


Kind = Literal["default", "after", "dead_letter"]


@frozen
class RetryDirective:
    """What a nack asks for: DEFAULT, `after(delay)` or DEAD_LETTER."""

    kind: Kind
    delay: timedelta | None = None

    DEFAULT: ClassVar["RetryDirective"]
    DEAD_LETTER: ClassVar["RetryDirective"]

    @classmethod
    def default(cls) -> "RetryDirective":
        """Deliver it again as the queue's settings say, if it has attempts left."""
        return cls("default")

    @classmethod
    def after(cls, delay: timedelta) -> "RetryDirective":
        """Deliver it again, not before `delay` has passed, if it has attempts left."""
        return cls("after", delay)

    @classmethod
    def dead_letter(cls) -> "RetryDirective":
        """Do not deliver it again."""
        return cls("dead_letter")


RetryDirective.DEFAULT = RetryDirective.default()
RetryDirective.DEAD_LETTER = RetryDirective.dead_letter()

RECONNECT: Final = RetryPolicy(
    initial_backoff=timedelta(milliseconds=50), max_backoff=timedelta(seconds=5)
)
"""The waits between attempts to connect."""
