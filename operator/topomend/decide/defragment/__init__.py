"""Which few pods are to be moved, so that less of what is free is unusable for the pods that typically come."""
