"""`klamm start`: one standalone broker in the foreground, until a signal ends it."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import signal
import time
from typing import TYPE_CHECKING

import klamm
from klamm.cli import UsageError

if TYPE_CHECKING:
    from klamm.core.options import Options

_EXAMPLES = """\
examples:
  klamm start                                   data in ./klamm-data, clients at 127.0.0.1:9092
  klamm start --data /var/lib/klamm --listen 0.0.0.0:9092
  klamm start --config server.properties --set num.partitions=8

Options have Kafka's names. Later ones win: --config, then --data and --listen, then --set.
"""
_DEFAULT_DATA = "klamm-data"
_WANTED_FILES = 65_536
_FEWEST_SEGMENTS = 32


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("--data", metavar="DIR", help=f"folder for the data (default: ./{_DEFAULT_DATA})")
    parser.add_argument(
        "--listen", metavar="HOST:PORT", help="where clients connect; port 0 takes a free one (default: 127.0.0.1:9092)"
    )
    parser.add_argument("--config", metavar="FILE", help="a properties file; Kafka's server.properties will do")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="set one option; repeatable")
    parser.add_argument(
        "--log-level",
        default="warning",
        choices=["debug", "info", "warning", "error"],
        help="log this and what is worse (default: warning)",
    )
    parser.add_argument("--log-file", metavar="FILE", help="log to this file instead of standard error")
    parser.add_argument("--log-json", action="store_true", help="one JSON object for each line of the log")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    began = _process_start()
    from klamm.core.options import OptionError, Options, parse_listeners, parse_properties, split_address
    from klamm.server.logging import configure as configure_logging

    try:
        options = Options.from_mapping(parse_properties(_read(args.config)) if args.config else {}, strict=False)
        chosen = dict(_assignment(text) for text in args.set)
        if args.listen is not None:
            if "://" in args.listen:
                raise UsageError("--listen takes HOST:PORT; for NAME://HOST:PORT use --set listeners=...")
            try:
                split_address(args.listen)
            except OptionError as error:
                raise UsageError(f"--listen takes HOST:PORT: {error}") from None
            options = options.overlay({"listeners": f"PLAINTEXT://{args.listen}", "advertised.listeners": ""})
        options = options.overlay(chosen)
        parse_listeners(options)
    except OptionError as error:
        raise UsageError(str(error)) from None
    folder = None if "log.dirs" in chosen or "log.dir" in chosen else args.data
    data = os.path.abspath(folder or options.data_dir or _DEFAULT_DATA)
    try:
        configure_logging(args.log_level, file=args.log_file, json_lines=args.log_json)
    except OSError as error:
        raise UsageError(f"cannot write the log file {args.log_file}: {error.strerror}") from None
    return asyncio.run(_serve(data, options, began))


async def _serve(data: str, options: Options, began: float) -> int:
    from klamm.core.env.real import real_env
    from klamm.log.handles import MAX_OPEN_SEGMENTS
    from klamm.server.node import Node, StartError

    file_limit = _raise_file_limit()
    loop = asyncio.get_running_loop()
    env = real_env(io_threads=options.get_int("num.io.threads"))
    # A quarter of the files for logs; the rest for connections (two each) and for requests that touch many partitions.
    node = Node(env, data, options, max_open_segments=max(_FEWEST_SEGMENTS, min(MAX_OPEN_SEGMENTS, file_limit // 4)))
    loop.set_exception_handler(node.on_loop_error)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        try:
            await node.start()
        except StartError as error:
            raise UsageError(str(error)) from None
        loop.add_signal_handler(signal.SIGUSR1, node.log_lag)
        gc.collect()
        gc.freeze()  # what start-up made lives as long as the process: never look at it again
        where = ", ".join(node.addresses)
        print(f"klamm {klamm.__version__} is ready: {where}, data in {data}, {time.time() - began:.2f} s", flush=True)
        failed = asyncio.ensure_future(node.failed())
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait([failed, stopped], return_when=asyncio.FIRST_COMPLETED)
        broken = failed.done()
        failed.cancel()
        stopped.cancel()
        await node.stop()
        if not broken:
            print("klamm has stopped.", flush=True)
        return 1 if broken else 0
    finally:
        env.executor.close()


def _raise_file_limit() -> int:
    """Ask for as many open files as this user may have; how many that are."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _WANTED_FILES
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(_WANTED_FILES, hard)
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # macOS refuses more than its own maximum
            return soft
    return max(soft, wanted)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a text file in UTF-8") from None


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"--set takes name=value, not {text!r}")
    return name.strip(), value.strip()


def _process_start() -> float:
    """When this process was made, as wall-clock seconds; the interpreter's own start counts too."""
    try:
        with open("/proc/self/stat", encoding="ascii") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        with open("/proc/uptime", encoding="ascii") as file:
            uptime = float(file.read().split()[0])
        return time.time() - (uptime - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError):
        return time.time()  # no /proc (macOS): count from here
