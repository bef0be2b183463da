"""The OpenAPI description of the HTTP interface, which the interface itself serves."""
