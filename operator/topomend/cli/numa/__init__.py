"""The kubectl plugin's verbs, one a file: ``kubectl numa show|explain|fit|simulate|relaunches|check``."""
