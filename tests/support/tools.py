"""What a test does when something it needs is not on this machine."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def unavailable(reason: str) -> NoReturn:
    """Skip, or fail where everything has to be there (CI)."""
    if os.environ.get("KLAMM_REQUIRE_TOOLS"):
        pytest.fail(f"{reason}, and KLAMM_REQUIRE_TOOLS is set")
    pytest.skip(reason)
