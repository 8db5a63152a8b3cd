"""HOST:PORT, as flags and environment give it."""


def host_and_port(address: str) -> tuple[str, int]:
    """The two parts of ``address``; the host is empty where none is named, the port may be 0.

    An IPv6 host may do without brackets: the downward API's ``status.podIP`` and ``status.hostIP`` have none. Raises
    ValueError where ``address`` is something else.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 1 << 16):
        raise ValueError(f"{address!r} is not HOST:PORT, such as 127.0.0.1:8081 or [::1]:8081")
    return host.removeprefix("[").removesuffix("]"), int(port)
