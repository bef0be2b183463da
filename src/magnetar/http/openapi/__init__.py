"""What the HTTP interface is, told by itself."""
