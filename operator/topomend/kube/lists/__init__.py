"""Lists of the API server, read while their bytes arrive: an object that nobody can read is that object's alone."""
