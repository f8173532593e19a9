"""The admin application: JSON API, pages, static files, health; and the task that serves it."""

from collections.abc import Sequence
from socket import socket
from ssl import SSLContext
from typing import Final

import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from sepp import http1
from sepp.admin import api
from sepp.admin.backend import Backend
from sepp.admin.guard import Guard
from sepp.admin.pages import routes as pages
from sepp.admin.pages.view import load_templates
from sepp.admin.site import Site
from sepp.http1 import ASGIApp

GRACE_S: Final = 10.0


def application(site: Site) -> ASGIApp:
    """Return the whole application behind its guard."""
    routes = [
        Route("/", _home),
        Route("/admin/healthz", _healthz),
        *api.routes(site),
        *pages.routes(site),
    ]
    return Guard(Starlette(routes=routes), site.sessions)


async def serve(
    backend: Backend,
    listening: Sequence[socket],
    *,
    tls: SSLContext | None = None,
    stop: trio.Event,
    reserved_descriptors: int = 64,
    task_status: trio.TaskStatus[Site] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the admin side on sockets of `sepp.binding` until `stop` is set.

    Streams end at once then, other answers within 10 s. Its faults stay here: the caller need not
    fear an exception of a handler.
    """
    await load_templates()
    site = Site(backend)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.run)
        task_status.started(site)
        async with trio.open_nursery() as listener:
            listener.start_soon(_close_streams, site, stop)
            await http1.serve(
                application(site),
                listening,
                tls=tls,
                stop=stop,
                grace_s=GRACE_S,
                reserved_descriptors=reserved_descriptors,
            )
        nursery.cancel_scope.cancel()


async def _close_streams(site: Site, stop: trio.Event) -> None:
    await stop.wait()
    site.hub.close()


async def _home(request: Request) -> Response:
    return RedirectResponse("/admin/", status_code=307)


async def _healthz(request: Request) -> Response:
    return PlainTextResponse("ok\n")
