"""topomend: pods refused by a kubelet for their topology get explained, and get running on a node that admits them."""

__version__ = "0.1.0"
