"""Leaving a cluster: no pod waits for topomend afterwards, none is lost with it, and nothing of it is on any pod."""
