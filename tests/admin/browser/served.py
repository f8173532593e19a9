"""The admin side on a port, with a server in memory behind it, for browsers."""

import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
import trio

from sepp.admin import app
from sepp.admin.site import Site
from sepp.binding import bind
from sepp.config.load import identity
from tests.fakes.operators import CONFIG, SECRETS, START_MS, FakeServer

Found = TypeVar("Found")

START_SECONDS_MAX = 30
LOOK_S = 0.02


class Served:
    """A `FakeServer` in a thread of its own; its clock goes on, its file is followed.

    A context manager. What touches the server goes through `do`, since it lives in another thread.
    """

    def __init__(self, directory: Path, config: str = CONFIG) -> None:
        self.port = 0
        self._directory = directory
        self._config = config
        key = f"Bearer {SECRETS['admin']}"
        self._client = httpx.Client(headers={"authorization": key}, trust_env=False)
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=[self._main], daemon=True)
        self._token: trio.lowlevel.TrioToken
        self._stop: trio.Event
        self.server: FakeServer
        self.site: Site

    @property
    def base(self) -> str:
        """The address a browser opens."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(START_SECONDS_MAX), "the admin side does not come up"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, if it has not ended yet."""
        self._client.close()
        if self._thread.is_alive():
            self._token.run_sync_soon(self._stop.set)
            self._thread.join(START_SECONDS_MAX)

    def do(self, act: Callable[..., Found], *args: Any, **more: Any) -> Found:
        """Call something in the server's thread and return what it returns."""
        return trio.from_thread.run_sync(lambda: act(*args, **more), trio_token=self._token)

    def run(self, act: Callable[[], Awaitable[Found]]) -> Found:
        """Await something in the server's thread and return what it returns."""
        return trio.from_thread.run(act, trio_token=self._token)

    def sign_in(self, role: str) -> str:
        """Return the cookie of a new session."""
        name = {"viewer": "vera", "operator": "otto", "admin": "ada"}[role]
        now_ms = self.server.backend.now_ms()
        opened = self.do(self.site.sessions.open, name, SECRETS[role], now_ms)
        assert opened is not None
        return opened[0]

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Return what the API answers an admin."""
        return self._client.request(method, f"{self.base}/admin/api/v1{path}", json=body).json()

    def api(self, path: str) -> Any:
        """Return what the API answers a question."""
        return self.call("GET", path)

    def trail(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Return actor, action and details of the audit entries, newest first."""
        entries = self.api("/audit")["entries"]
        return [(one["actor"], one["action"], one["details"]) for one in entries]

    def numbers(self, queue: str = "webhooks") -> dict[str, int]:
        """Return how many jobs a queue holds, by state."""
        found = self.do(self.server.backend.queue, queue)
        states = ("ready", "scheduled", "inflight", "dead_lettered")
        return {state: getattr(found, state) for state in states if getattr(found, state, 0)}

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        self.server = FakeServer(self._directory, self._config)
        listening = bind("127.0.0.1", 0)
        self.port = listening.getsockname()[1]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._go_on)
            nursery.start_soon(self._serve, nursery, listening)

    async def _serve(self, nursery: trio.Nursery, listening: Any) -> None:
        async with trio.open_nursery() as serving:
            serve = serving.start
            self.site = await serve(
                lambda task_status: app.serve(
                    self.server.backend, [listening], stop=self._stop, task_status=task_status
                )
            )
            self._is_up.set()
        nursery.cancel_scope.cancel()

    async def _go_on(self) -> None:
        """Let time pass and follow the file; the real watcher wants the main thread."""
        started = trio.current_time()
        reloader = self.server.reloader
        while True:
            await trio.sleep(LOOK_S)
            passed_ms = int((trio.current_time() - started) * 1000)
            self.server.wall_ms = max(self.server.wall_ms, START_MS + passed_ms)
            if identity(str(reloader.path)) != reloader.identity:
                reloader.reload()
