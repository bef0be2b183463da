"""What holds for all tests."""

import signal

from hypothesis import settings

# How long an example takes says how busy the machine is.
settings.register_profile("magnetar", deadline=None)
settings.load_profile("magnetar")

# What a script starts in its background ignores Ctrl-C, and so would all that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
