from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from klamm.server.logging import LimitedLog, configure


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    root.handlers = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers = handlers
    root.setLevel(level)


def test_a_line_has_time_level_place_and_message() -> None:
    out = io.StringIO()
    configure("info", stream=out)
    logging.getLogger("klamm.server.node").warning("low on %s", "disk")
    logging.getLogger("klamm.server.node").debug("not this")
    (line,) = out.getvalue().splitlines()
    date, time, rest = line.split(" ", 2)
    assert len(date) == 10 and len(time) == 12
    assert rest == "WARNING server.node: low on disk"


def test_a_message_cannot_forge_a_second_line_but_a_traceback_has_its_own() -> None:
    out = io.StringIO()
    configure(stream=out)
    try:
        raise ValueError("kaput")
    except ValueError:
        logging.getLogger("klamm").exception("failed for %s", "x\n2026 ERROR forged")
    lines = out.getvalue().splitlines()
    assert lines[0].endswith("failed for x\\n2026 ERROR forged")
    assert lines[-1] == "ValueError: kaput"


def test_json_lines_are_one_object_each(tmp_path: Any) -> None:
    path = tmp_path / "broker.log"
    configure("debug", file=str(path), json_lines=True)
    logger = logging.getLogger("klamm.log")
    logger.debug("zwölf\nlines")
    try:
        raise ValueError("kaput")
    except ValueError:
        logger.exception("failed")
    first, second = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert (first["level"], first["logger"], first["message"]) == ("debug", "klamm.log", "zwölf\nlines")
    assert first["time"].endswith("Z")
    assert "ValueError: kaput" in second["traceback"]


def test_configuring_again_replaces_what_was_there(tmp_path: Any) -> None:
    out = io.StringIO()
    configure(file=str(tmp_path / "a.log"))
    configure(stream=out)
    logging.getLogger("klamm").info("here")
    assert "here" in out.getvalue()
    assert (tmp_path / "a.log").read_text() == ""


def test_a_level_that_is_none_and_a_file_that_cannot_be_are_errors(tmp_path: Any) -> None:
    with pytest.raises(ValueError, match="no log level: 'loud'"):
        configure("loud")
    with pytest.raises(OSError):
        configure(file=str(tmp_path / "missing" / "a.log"))


def test_the_human_format_does_not_import_what_only_others_need() -> None:
    import subprocess
    import sys

    code = (
        "import sys, klamm.server.logging as l; l.configure();"
        "print('json' in sys.modules or 'logging.handlers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_a_limited_log_counts_what_it_does_not_write(caplog: pytest.LogCaptureFixture) -> None:
    class Clock:
        now = 0.0

        def time_ms(self) -> int:
            return 0

        def monotonic(self) -> float:
            return self.now

    clock = Clock()
    log = LimitedLog(logging.getLogger("limited"), clock)
    for i in range(25):
        log.warning("line %d", i)
    assert len(caplog.records) == 10
    clock.now = 11.0
    log.error("again")
    assert [record.getMessage() for record in caplog.records[10:]] == [
        "15 more lines like the last ones were not written",
        "again",
    ]
