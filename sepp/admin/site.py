"""What all handlers of the admin side share, and the one way they change anything."""

from collections.abc import Callable, Iterable, Mapping

import trio
from attrs import define, field

from sepp.admin import trail
from sepp.admin.backend import Backend, CommandRefusedError, Committed
from sepp.admin.errors import ApiError
from sepp.admin.notes import Notes
from sepp.admin.sessions import Actor, FailedLogins, Sessions
from sepp.admin.stats import Stats
from sepp.admin.stream import Hub
from sepp.core.commands import Command
from sepp.core.outcomes import Outcome

Details = Callable[[list[Outcome]], Mapping[str, object] | None]


@define
class Site:
    """One admin listener's state: everything here is lost at a restart and nobody misses it."""

    backend: Backend
    sessions: Sessions = field(init=False)
    stats: Stats = field(init=False)
    hub: Hub = field(factory=Hub, init=False)
    notes: Notes = field(factory=Notes, init=False)
    failed_logins: FailedLogins = field(factory=FailedLogins, init=False)
    config_lock: trio.Lock = field(factory=trio.Lock, init=False)
    wrong_login_s: float = 0.5  # what a wrong sign-in has to wait

    def __attrs_post_init__(self) -> None:
        self.sessions = Sessions(self.backend.config)
        self.stats = Stats(self.backend)

    async def run(self) -> None:
        """Sample each second, tell the streams, and watch for reloads; until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.stats.run)
            nursery.start_soon(self._publish_frames)
            nursery.start_soon(self._publish_reloads)

    async def _publish_frames(self) -> None:
        while True:
            await self.stats.wait_sampled()
            if len(self.hub):
                self.hub.publish_frame(await self.stats.frame(age_ms_max=0))

    async def _publish_reloads(self) -> None:
        config = self.backend.config
        while True:
            await config.wait_reload(config.reload_count)
            self.hub.publish_reload(config.reload_count)

    async def act(
        self,
        actor: Actor | str,
        action: str,
        commands: Iterable[Command],
        details: Details,
    ) -> Committed:
        """Do something and put it on record in the same commit; durable on return.

        `details` sees the outcomes; None means that nothing happened and nothing is recorded.

        Raises:
            ApiError: The server could not take it; nothing happened.
        """
        now_ms = self.backend.now_ms()
        bodies: list[bytes] = []

        def build(outcomes: list[Outcome]) -> bytes | None:
            found = details(outcomes)
            if found is None:
                return None
            bodies.append(trail.encode_entry(actor, action, found, now_ms))
            return bodies[0]

        try:
            done = await self.backend.run(commands, build)
        except CommandRefusedError as error:
            raise ApiError(409, "resource_exhausted", str(error)) from error
        if done.sequence is not None:
            entry = trail.decode_entry(done.sequence, bodies[0])
            trail.log_entry(entry)
            self.hub.publish_audit(entry)
        return done

    async def record(
        self, actor: Actor | str, action: str, details: Mapping[str, object]
    ) -> int | None:
        """Put on record what is not a command to the queue; durable on return."""
        return (await self.act(actor, action, (), lambda _: details)).sequence
