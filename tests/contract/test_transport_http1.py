"""The HTTP client under uvloop, the server's own event loop, which differs where connects are cancelled."""

import asyncio

import pytest
import uvloop

from serving.transport.http1 import Http1Client, Origin

REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(REPLY)
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def cancel_after(turns: int, client: Http1Client) -> None:
    call = asyncio.create_task(client.exchange("GET", "/"))
    for _ in range(turns):
        await asyncio.sleep(0)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)


async def cancel_at_every_moment() -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    origin = Origin.parse(f"http://127.0.0.1:{port}")
    client = Http1Client(origin, connect_timeout_s=1.0, keep_alive_s=0.0)
    for _ in range(10):
        await asyncio.gather(*(cancel_after(turns, client) for turns in range(12)))
    assert (await client.exchange("GET", "/")).body == b"ok"
    async with asyncio.timeout(2):
        await client.aclose()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_calls_cancelled_at_any_moment_do_not_keep_the_client_from_closing(run) -> None:
    run(cancel_at_every_moment())


@pytest.mark.parametrize(
    ("url", "host", "port", "authority", "path"),
    [
        ("http://10.0.0.7:8000", "10.0.0.7", 8000, "10.0.0.7:8000", ""),
        ("http://replica", "replica", 80, "replica", ""),
        ("https://replica/base é/", "replica", 443, "replica", "/base%20%C3%A9"),
        ("http://[::1]:9/x", "::1", 9, "[::1]:9", "/x"),
    ],
)
def test_origins(url: str, host: str, port: int, authority: str, path: str) -> None:
    origin = Origin.parse(url)
    assert (origin.host, origin.port, origin.authority, origin.path) == (host, port, authority, path)
    assert (origin.tls is not None) == url.startswith("https")
