"""The proxy: clients that cannot reach brokers are connected with them."""
