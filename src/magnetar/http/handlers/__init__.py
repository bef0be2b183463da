"""What an endpoint asks of the broker."""
