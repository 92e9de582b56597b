"""What `decgraph bench` runs: algorithms against transformers' own loops on the same weights."""
