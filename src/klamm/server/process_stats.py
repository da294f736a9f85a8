"""The process as the system sees it: memory, CPU time, open files. Under the names that every exporter gives them.

Blocks for a moment (a listing of /proc): to be read in the executor. What a system does not tell is left out.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from klamm.core.env import Files
from klamm.server.exposition import Exposition

_OPEN_FILES = "/proc/self/fd"
_MEMORY = "/proc/self/statm"


class ProcessStats(NamedTuple):
    cpu_s: float
    max_files: int
    resident_bytes: int | None
    virtual_bytes: int | None
    open_files: int | None


def read_process(files: Files) -> ProcessStats:
    import resource

    times = os.times()
    max_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        pages = files.read(_MEMORY).split()
        open_files: int | None = len(files.list(_OPEN_FILES)) - 1  # the listing itself has one open
    except OSError:  # macOS, and the simulation
        return ProcessStats(times.user + times.system, max_files, None, None, None)
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return ProcessStats(
        times.user + times.system, max_files, int(pages[1]) * page_bytes, int(pages[0]) * page_bytes, open_files
    )


def add_process(page: Exposition, stats: ProcessStats) -> None:
    page.counter("process_cpu_seconds_total", "CPU time of the process, of the user and of the system.")
    page.add(stats.cpu_s)
    for name, value, doc in (
        ("process_resident_memory_bytes", stats.resident_bytes, "Memory in use."),
        ("process_virtual_memory_bytes", stats.virtual_bytes, "Memory that is mapped."),
        ("process_open_fds", stats.open_files, "Open files and sockets."),
        ("process_max_fds", stats.max_files, "Open files and sockets that the system allows."),
    ):
        if value is not None:
            page.gauge(name, doc)
            page.add(value)
