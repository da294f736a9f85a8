"""Regular expressions that strangers send: RE2, whose time is linear in its input whatever the expression.

The module is imported with the first expression (7 ms).
"""

from __future__ import annotations

from typing import Any


def compiled(expression: str) -> Any:
    """Something with `fullmatch`, for bytes; or a str that says why there is none."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(expression.encode(), options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
