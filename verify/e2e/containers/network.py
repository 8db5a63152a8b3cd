"""The addresses of one cluster in its own network namespace, and the network configuration of pods.

All pods are on one bridge. Every other address is the loopback interface's: pods reach the kubelets and the API server
through the bridge's own address, and the API server listens at the first address of the service range itself, so that
``KUBERNETES_SERVICE_HOST`` is true without a kube-proxy.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

BRIDGE = "topomend0"
BRIDGE_ADDRESS = "02:00:00:00:00:01"
"""The bridge's hardware address. Without one a bridge takes the lowest of its ports, which changes as pods come and go;
for up to a minute the other pods would then send to the previous one."""


@dataclass(frozen=True)
class Network:
    """The three ranges of a cluster, all of one family: pods, nodes, services."""

    pods: IPv4Network | IPv6Network
    nodes: IPv4Network | IPv6Network
    services: IPv4Network | IPv6Network

    @property
    def gateway(self) -> str:
        """The bridge's own address; the control plane's too."""
        return str(self.pods[1])

    @property
    def api_service(self) -> str:
        """The address of the Service ``kubernetes``: the first of the range."""
        return str(self.services[1])

    @property
    def any_address(self) -> str:
        """The address of this family that means all addresses."""
        return "0.0.0.0" if self.pods.version == 4 else "::"  # noqa: S104 - within a namespace of its own

    def node(self, number: int) -> str:
        """The address of the node of that number, from 1."""
        return str(self.nodes[number])

    def bracketed(self, address: str) -> str:
        """The address as it is written before a port."""
        return address if self.pods.version == 4 else f"[{address}]"

    def setup(self) -> Iterator[Sequence[str]]:
        """The commands that create the cluster's interfaces."""
        yield ["ip", "link", "set", "lo", "up"]
        yield ["ip", "link", "add", BRIDGE, "address", BRIDGE_ADDRESS, "type", "bridge"]
        yield self._add(f"{self.gateway}/{self.pods.prefixlen}", BRIDGE)
        yield ["ip", "link", "set", BRIDGE, "up"]
        yield self._add(f"{self.api_service}/{self.services.max_prefixlen}", "lo")

    def setup_node(self, number: int) -> Iterator[Sequence[str]]:
        """The commands that give the node of that number its address."""
        yield self._add(f"{self.node(number)}/{self.nodes.max_prefixlen}", "lo")

    def cni(self, number: int, data: str) -> Mapping[str, Any]:
        """The CNI configuration of a node; the plugin records addresses in the folder ``data``."""
        first = int(self.pods[0]) + number * 256
        kind = type(self.pods[0])
        part = {"rangeStart": str(kind(first + 1)), "rangeEnd": str(kind(first + 254))}
        everywhere = "0.0.0.0/0" if self.pods.version == 4 else "::/0"
        bridge = {
            "type": "bridge",
            "bridge": BRIDGE,
            "ipam": {
                "type": "host-local",
                "dataDir": data,
                "ranges": [[{"subnet": str(self.pods), "gateway": self.gateway, **part}]],
                "routes": [{"dst": everywhere}],
            },
        }
        return {"cniVersion": "0.4.0", "name": "topomend", "plugins": [bridge]}

    def _add(self, address: str, interface: str) -> Sequence[str]:
        # An address of IPv6 is at first only tried (duplicate address detection), and cannot be listened at.
        return ["ip", "address", "add", address, "dev", interface, *(["nodad"] if self.pods.version == 6 else [])]


IPV4 = Network(ip_network("10.88.0.0/16"), ip_network("10.89.0.0/24"), ip_network("10.0.0.0/24"))
IPV6 = Network(ip_network("fd00:88::/64"), ip_network("fd00:89::/120"), ip_network("fd00:10::/112"))
