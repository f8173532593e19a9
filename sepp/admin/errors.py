"""Refusals of the admin side, as the API words them."""

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from sepp.admin.messages import ErrorBody, RejectionBody

_encode = msgspec.json.Encoder().encode


class ApiError(Exception):
    """A request that is answered with an error; whose fault it is stands in the status.

    Args:
        status: The HTTP status.
        code: The code of the API.
        text: One sentence for people: what did not happen, and why.
        rejection: For a job that was refused: the label and detail of the reason.
        headers: Headers the answer needs, such as Allow.
    """

    def __init__(
        self,
        status: int,
        code: str,
        text: str,
        *,
        rejection: RejectionBody | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.text = text
        self.rejection = rejection
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Return the JSON answer."""
        body = ErrorBody(error=self.text, code=self.code)
        if self.rejection is not None:
            body.rejection = self.rejection
        return Response(
            _encode(body),
            status_code=self.status,
            media_type="application/json",
            headers=self.headers,
        )


def invalid(text: str) -> ApiError:
    """Return the error for a request that cannot be understood."""
    return ApiError(400, "invalid_argument", text)


def not_found(text: str) -> ApiError:
    """Return the error for a thing that is not there."""
    return ApiError(404, "not_found", text)


def unauthorized(text: str) -> ApiError:
    """Return the error for a request nobody signed."""
    return ApiError(401, "unauthorized", text, headers={"WWW-Authenticate": "Bearer"})


def forbidden(text: str) -> ApiError:
    """Return the error for a role that is too low, or a request from a foreign page."""
    return ApiError(403, "forbidden", text)
