"""The result of a page's action, kept for the one page that is shown after it."""

import secrets
from typing import Final, Literal

from attrs import frozen

NOTES_MAX: Final = 256

Tone = Literal["good", "part", "bad"]


@frozen
class Note:
    """One toast. `audit` is the number of the entry that records the action."""

    text: str
    tone: Tone = "good"
    audit: int | None = None
    # Shown once and never again: an API key that was just made.
    secret: str | None = None


class Notes:
    """At most 256 results that nobody has come to read yet; the oldest makes room."""

    def __init__(self) -> None:
        self._by_ticket: dict[str, Note] = {}

    def put(self, note: Note) -> str:
        """Keep a note and return the ticket for it."""
        if len(self._by_ticket) >= NOTES_MAX:
            del self._by_ticket[next(iter(self._by_ticket))]
        ticket = secrets.token_urlsafe(12)
        self._by_ticket[ticket] = note
        return ticket

    def take(self, ticket: str | None) -> Note | None:
        """Return the note of a ticket, once."""
        return self._by_ticket.pop(ticket, None) if ticket else None
