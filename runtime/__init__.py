"""What decoding needs at run time: models, requests, shaping, keyed noise, the stop machine, text and
traces."""
