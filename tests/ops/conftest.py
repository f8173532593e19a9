"""The servers of the end-to-end tests, for those that look at them as an operator does."""

from tests.e2e.conftest import peer, server, start_server

__all__ = ["peer", "server", "start_server"]
