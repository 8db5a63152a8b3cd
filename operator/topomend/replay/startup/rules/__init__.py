"""The checks of a configuration, each part of it a file. Leaves their order to ``validation``."""
