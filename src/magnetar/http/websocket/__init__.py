"""Messages over WebSocket: producers, consumers and readers for whoever has no client."""
