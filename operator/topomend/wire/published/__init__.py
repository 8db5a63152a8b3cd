"""What agents publish: the NodeTopology with its parts, and the NodeResourceTopology of other projects."""
