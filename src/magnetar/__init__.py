"""Magnetar: a messaging and streaming system that speaks Apache Pulsar's protocols."""

__version__ = "0.1.0"
