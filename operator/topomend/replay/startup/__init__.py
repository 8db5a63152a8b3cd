"""Whether a kubelet starts: ``validation`` of its configuration by ``rules``, and the ``state`` that it left."""
