"""What goes wrong on the wire: one exception, for anything that is not a well-formed message."""

from __future__ import annotations


class ProtocolError(ValueError):
    """The bytes are not that message in that version, or the message cannot be said in that version."""
