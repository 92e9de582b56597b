"""Published decoding algorithms, one .dec file each."""
