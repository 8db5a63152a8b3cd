"""The operator's door: kopf's streams in, reconciling out. Composition only; rules live in the rooms it calls."""
