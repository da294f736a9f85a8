"""A file for those who can only be given a path (OpenSSL reads keys from nothing else), on no disk where possible."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def secret_file(content: bytes) -> Iterator[str]:
    """The path of a file with this content, which only we can read. It is gone afterwards."""
    if hasattr(os, "memfd_create"):  # Linux: in memory, without a name
        fd = os.memfd_create("klamm")
        try:
            with open(fd, "wb", closefd=False) as file:
                file.write(content)
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)
    else:
        with tempfile.NamedTemporaryFile() as named:  # made with mode 0600
            named.write(content)
            named.flush()
            yield named.name
