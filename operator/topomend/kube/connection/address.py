"""Addresses in the form HOST:PORT, as in flags and environment variables."""


def host_and_port(address: str) -> tuple[str, int]:
    """The host and the port of ``address``. The host is empty if ``address`` has none; the port may be 0.

    An IPv6 host needs no brackets: the downward API's ``status.podIP`` and ``status.hostIP`` have none. Raises
    ValueError if ``address`` is not of this form.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 1 << 16):
        raise ValueError(f"{address!r} is not HOST:PORT, such as 127.0.0.1:8081 or [::1]:8081")
    return host.removeprefix("[").removesuffix("]"), int(port)
