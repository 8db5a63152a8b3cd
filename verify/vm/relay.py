"""In the virtual machine, in the place of kube-proxy: carries connections to the Service ``kubernetes`` out to the API
server. ``relay.py HOST PORT TO_HOST TO_PORT``. Runs on the standard library alone.
"""

import asyncio
import contextlib
import sys


async def relay(host: str, port: int, to_host: str, to_port: int) -> None:
    """Take connections at ``host`` and ``port`` until the machine ends."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, requests = await asyncio.open_connection(to_host, to_port)
        except OSError as error:
            print(f"relay: the API server is not reached: {error}", file=sys.stderr, flush=True)
            writer.close()
            return
        await asyncio.gather(_copy(reader, requests), _copy(answers, writer))

    server = await asyncio.start_server(carry, host, port)
    await server.serve_forever()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()


if __name__ == "__main__":
    asyncio.run(relay(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
