"""grpc.health.v1: Check and Watch over statuses that the process sets."""

from collections.abc import Iterable
from typing import Final

from google.protobuf.message import DecodeError
from purerpc import StatusCode

from sepp._generated.health_pb2 import HealthCheckRequest, HealthCheckResponse
from sepp._generated.health_purerpc import HealthServicer
from sepp.rpc.call import Call

_SERVING: Final = HealthCheckResponse(status=HealthCheckResponse.SERVING).SerializeToString()
_NOT_SERVING: Final = HealthCheckResponse(
    status=HealthCheckResponse.NOT_SERVING
).SerializeToString()
_UNKNOWN: Final = HealthCheckResponse(
    status=HealthCheckResponse.SERVICE_UNKNOWN
).SerializeToString()


class Health(HealthServicer):
    """The standard health service.

    Args:
        serving: Names known from the start, as SERVING; "" stands for the whole server.
        not_serving: Names known from the start, as NOT_SERVING.
    """

    def __init__(self, serving: Iterable[str] = (), not_serving: Iterable[str] = ()) -> None:
        self._answers = dict.fromkeys(serving, _SERVING) | dict.fromkeys(not_serving, _NOT_SERVING)
        self._watchers: dict[str, dict[Call, None]] = {}

    def set(self, name: str, *, is_serving: bool) -> None:
        """Change a status; those who watch it are told with the server's next flush."""
        answer = _SERVING if is_serving else _NOT_SERVING
        if self._answers.get(name) == answer:
            return
        self._answers[name] = answer
        for call in self._watchers.get(name, ()):
            call.send(answer)

    def Check(self, call: Call) -> None:  # noqa: N802  # the RPC's name
        """Answer the status of one name; NOT_FOUND for a name never set."""
        name = self._name(call)
        if name is None:
            return
        answer = self._answers.get(name)
        if answer is None:
            call.fail(StatusCode.NOT_FOUND, f"unknown service {name!r}")
        else:
            call.respond(answer)

    def Watch(self, call: Call) -> None:  # noqa: N802  # the RPC's name
        """Send the status of one name now and at each change, SERVICE_UNKNOWN until it is set."""
        name = self._name(call)
        if name is None:
            return
        self._watchers.setdefault(name, {})[call] = None
        call.on_gone = lambda gone: self._leave(name, gone)
        call.send(self._answers.get(name, _UNKNOWN))

    def _leave(self, name: str, call: Call) -> None:
        watchers = self._watchers[name]
        del watchers[call]
        if not watchers:
            del self._watchers[name]

    def _name(self, call: Call) -> str | None:
        try:
            return HealthCheckRequest.FromString(call.message).service
        except DecodeError:
            call.fail(StatusCode.INTERNAL, "the message is not a grpc.health.v1.HealthCheckRequest")
            return None
