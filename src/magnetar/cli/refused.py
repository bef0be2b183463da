"""The error for command lines that cannot be carried out."""


class Refused(Exception):
    """The command line or its message cannot be processed; the text says why."""
