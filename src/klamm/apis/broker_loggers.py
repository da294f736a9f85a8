"""The levels of this broker's loggers, shown and changed as those of Kafka's log4j are (KIP-412).

They are not metadata: nothing is stored, and a restart has the level that the command line says. Loggers without a
level of their own have that of `root`. A level that Python does not have is the nearest one (TRACE is DEBUG).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from klamm.controller import ConfigChange, ConfigOperation, check_form
from klamm.core.errors import BrokerError, ErrorCode

ROOT = "root"
_OURS = "klamm"

LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES = {level: name for name, level in LEVELS.items()}  # of two names the later: DEBUG

_log = logging.getLogger(__name__)


def described_loggers() -> dict[str, str]:
    """The level in force of each logger, by name."""
    names = sorted(name for name in logging.root.manager.loggerDict if name == _OURS or name.startswith(f"{_OURS}."))
    found = {name: _level_name(logging.getLogger(name)) for name in names}
    return found | {ROOT: _level_name(logging.getLogger())}


def change_loggers(changes: Sequence[ConfigChange], *, validate_only: bool) -> None:
    """BrokerError, and nothing is changed, if any of them cannot be."""
    check_form(changes)
    known = described_loggers()
    for change in changes:
        _check(change, known)
    if validate_only:
        return
    for change in changes:
        logger = logging.getLogger(None if change.name == ROOT else change.name)
        is_set = change.operation == ConfigOperation.SET and change.value is not None
        logger.setLevel(LEVELS[str(change.value)] if is_set else logging.NOTSET)
        _log.warning("The log level of %s is %s from now on.", change.name, _level_name(logger))


def _check(change: ConfigChange, known: dict[str, str]) -> None:
    if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "the level of a logger can only be set, or taken back")
    if change.name not in known:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"there is no logger {change.name}")
    if change.operation == ConfigOperation.DELETE:
        if change.name == ROOT:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"the level of {ROOT} cannot be taken back; set another one")
    elif change.value not in LEVELS:
        raise BrokerError(
            ErrorCode.INVALID_CONFIG, f"{change.name}={change.value} is not one of the levels {', '.join(LEVELS)}"
        )


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return _NAMES.get(level) or logging.getLevelName(level)
