"""The description of the HTTP interface, served by itself."""
