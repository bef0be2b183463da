"""The authentication providers of Magnetar, one module each."""
