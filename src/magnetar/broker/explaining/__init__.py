"""Why nothing arrives: what dispatchers and topics say of themselves, in words and figures, and a command."""
