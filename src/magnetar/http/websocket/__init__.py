"""Messages over WebSocket: producers, consumers and readers for programs without a client library."""
