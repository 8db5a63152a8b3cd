"""``topomend sandbox`` and ``topomend demo``: what needs the extra that no image has."""
