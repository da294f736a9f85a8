"""Getting through to a broker: names, addresses, the handshake of TLS; and in plain words why it did not work."""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from collections.abc import Callable
from typing import Final

from klamm.client.errors import ClientError, ConnectionLost, TimedOut, TlsFailed
from klamm.core.env import Env, Tls

NO_TLS_HINT: Final = (
    "Is this the listener for TLS? If it has none, security.protocol should be PLAINTEXT or SASL_PLAINTEXT."
)

ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""The connection ended in the middle of TLS: a broker that stops, say, which is no reason never to come back."""


async def reach(
    env: Env, host: str, port: int, timeout_s: float, tls: Tls | None, factory: Callable[[], asyncio.BufferedProtocol]
) -> asyncio.BufferedProtocol:
    """A connection to the first of the host's addresses that takes one."""
    problems: list[ClientError] = []
    try:
        async with asyncio.timeout(timeout_s):
            addresses = await env.network.resolve(host)
    except TimeoutError:
        raise TimedOut(f"finding the address took longer than {timeout_s:g} s") from None
    except OSError as error:
        raise ConnectionLost(reason_of(error)) from None
    for address in addresses:
        try:
            async with asyncio.timeout(timeout_s):
                _, made = await env.network.connect(address, port, factory, tls=tls)
                return made
        except TimeoutError:
            problems.append(TimedOut(f"connecting took longer than {timeout_s:g} s"))
        except (ConnectionResetError, *ENDED) as error:
            if tls is None:
                problems.append(ConnectionLost(reason_of(error)))
            else:
                problems.append(ConnectionLost("it ended the connection in the handshake of TLS", NO_TLS_HINT))
        except ssl.SSLError as error:
            raise tls_failed(f"{host}:{port}", error) from None
        except OSError as error:
            problems.append(ConnectionLost(reason_of(error)))
    raise problems[-1]


def tls_failed(address: str, error: ssl.SSLError) -> TlsFailed:
    from klamm.client.tls import failed

    problem = failed(error)
    return TlsFailed(f"No protected connection to {address}: {problem.text}.", problem.hint)


def reason_of(error: OSError) -> str:
    """What a person wants to know of an OSError, without numbers and addresses."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    number = error.errno
    if number is None:  # asyncio joins the errors of several addresses of a host into one text
        found = re.search(r"\[Errno (\d+)\]", str(error))
        number = int(found[1]) if found else None
    if number is not None and number > 0:
        return os.strerror(number).lower()
    return (error.strerror or str(error) or type(error).__name__).lower()


def who_answers(first_bytes: bytes) -> str:
    if first_bytes[:1] in (b"\x15", b"\x16"):
        return "It looks like TLS: security.protocol should be SSL or SASL_SSL."
    if first_bytes.startswith(b"HTTP"):
        return "It is a web server; check the port."
    return "Check the port."
