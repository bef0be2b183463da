"""A client's connection: frames in and out, and what its commands do."""
