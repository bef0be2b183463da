"""HTTP on a socket: requests in, responses out."""
