"""The ways to prove a role that come with Magnetar, one module each."""
