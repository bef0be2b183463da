"""What a command line asks for and cannot have."""


class Refused(Exception):
    """The command line, or what is to be sent, cannot be carried out; the text says why."""
