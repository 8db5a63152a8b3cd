"""``kubectl numa explain``: a pod's answer on each node, after a refusal, and after a resize."""
