"""Discover a node: its machine, its kubelet's settings, and the allocations of its containers.

Replay is only as good as the state it starts from, so this room reads each fact where the kubelet reads it, and names
every contradiction in a condition instead of guessing. It owns the sources, one a file: those in ``machine``, and
``kubelet_config``, ``kubelet_process``, ``pod_resources`` and ``state_files`` for the kubelet. ``host`` combines those
of the machine; ``kubelet_settings``, ``allocations``, ``assemble`` and ``discover`` combine the rest. Publishing is
left to ``publish``, the kubelet's rules to ``replay``.
"""
