import pytest

from topomend.kube.connection.address import host_and_port


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:8081", ("127.0.0.1", 8081)),
        (":0", ("", 0)),
        ("[::1]:65535", ("::1", 65535)),
        ("fd00::7:9090", ("fd00::7", 9090)),  # a pod IP from the downward API has no brackets
    ],
)
def test_an_address_has_a_host_and_a_port(address: str, expected: tuple[str, int]) -> None:
    assert host_and_port(address) == expected


@pytest.mark.parametrize("address", ["", "8081", "host", "host:", "host:65536", "host:-1", "host:8x", "host:٣"])
def test_anything_else_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(ValueError, match=r"is not HOST:PORT, such as 127\.0\.0\.1:8081"):
        host_and_port(address)
