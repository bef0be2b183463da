"""The authentication providers that come with Magnetar, one module each."""
