"""``topomend simulate``: a kubelet put together from files, and its answers to a list of pods."""
