"""The HTTP of the metrics page, byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from klamm.core.env.real import real_env
from klamm.server import http
from klamm.server.http import MAX_CONNECTIONS, MAX_HEAD_BYTES, HttpServer, Reply


class Site:
    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cancelled = False
        self.port = 0
        pages = {"/page": self.page, "/broken": self.broken, "/slow": self.slow}
        self.server = HttpServer(real_env(), pages)

    async def page(self) -> Reply:
        return Reply(200, "grüß Gott\n")

    async def broken(self) -> Reply:
        raise ValueError("this page has a fault")

    async def slow(self) -> Reply:
        self.waiting.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return Reply(503, "later\n", "application/json")

    async def ask(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        status, *lines = head.decode().split("\r\n")
        return int(status.split()[1]), dict(line.split(": ", 1) for line in lines), body


async def is_cut_off(site: Site) -> bool:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    try:
        return await reader.read() == b""
    except ConnectionResetError:
        return True
    finally:
        writer.close()


async def served_at_last(site: Site) -> int:
    """The status of a page, when a place is free for who asks for it."""
    while True:
        try:
            return (await site.ask(b"GET /page HTTP/1.1\r\n\r\n"))[0]
        except (ConnectionError, IndexError):
            await asyncio.sleep(0)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    site.port = await site.server.start("127.0.0.1", 0)
    yield site
    site.server.close()
    await asyncio.sleep(0)


async def test_a_page_comes_whole_and_the_connection_ends(site: Site) -> None:
    status, headers, body = await site.ask(b"GET /page?x=1 HTTP/1.1\r\nHost: here\r\n\r\n")
    assert (status, body.decode()) == (200, "grüß Gott\n")
    assert headers["Content-Length"] == str(len(body))
    assert headers["Connection"] == "close"


async def test_head_has_the_length_and_no_body(site: Site) -> None:
    status, headers, body = await site.ask(b"HEAD /page HTTP/1.1\r\n\r\n")
    assert (status, headers["Content-Length"], body) == (200, "12", b"")


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /elsewhere HTTP/1.1\r\n\r\n", 404),
        (b"GET / HTTP/1.0\n\n", 404),
        (b"POST /page HTTP/1.1\r\n\r\n", 405),
        (b"GET /page\r\n\r\n", 400),
        (b"\x00\x00\x00\x10\x00\x12\n\n", 400),
        (b"GET /page HTTP/1.1\r\nX: " + b"x" * MAX_HEAD_BYTES, 431),
        (b"GET /broken HTTP/1.1\r\n\r\n", 500),
    ],
)
async def test_what_is_no_page_is_answered(site: Site, request_bytes: bytes, status: int) -> None:
    assert (await site.ask(request_bytes))[0] == status
    assert (await site.ask(b"GET /page HTTP/1.1\r\n\r\n"))[0] == 200


async def test_a_kafka_client_on_the_wrong_port_is_told_at_once(site: Site) -> None:
    assert (await site.ask(b"\0\0\0\x0c\0\x12\0\0\0\0\0\1\xff\xff"))[0] == 400


async def test_a_request_may_come_in_pieces(site: Site) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", site.port)
    for byte in b"GET /page HTTP/1.1\r\n\r\n":
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0)
    assert b"200 OK" in await reader.readline()
    writer.close()


async def test_a_page_that_nobody_waits_for_is_given_up(site: Site) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", site.port)
    writer.write(b"GET /slow HTTP/1.1\r\n\r\n")
    await site.waiting.wait()
    writer.transport.abort()
    while not site.cancelled:
        await asyncio.sleep(0)


async def test_one_connection_too_many_is_cut_off_and_the_next_is_served(site: Site) -> None:
    held: list[Any] = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(MAX_CONNECTIONS)]
    held[0][1].write(b"GET /slow HTTP/1.1\r\n\r\n")
    await site.waiting.wait()
    assert await is_cut_off(site)
    site.go_on.set()
    assert b"503" in await held[0][0].read()
    held[0][1].close()
    assert await served_at_last(site) == 200
    for _, writer in held:
        writer.close()


async def test_who_stays_after_the_answer_is_cut_off_in_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT_S", 0.1)
    held: list[Any] = [await asyncio.open_connection("127.0.0.1", site.port) for _ in range(MAX_CONNECTIONS)]
    for _, writer in held:
        writer.write(b"GET /page HTTP/1.1\r\n\r\n")
    assert await served_at_last(site) == 200
    for _, writer in held:
        writer.close()


async def test_who_says_nothing_is_cut_off_in_time(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT_S", 0.01)
    assert await is_cut_off(site)
