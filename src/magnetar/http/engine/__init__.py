"""HTTP on sockets: parses requests and sends responses."""
