"""Whole server, real process, real socket, real disk; and the official client as the other side."""
