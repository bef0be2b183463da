"""Sends metrics to an OpenTelemetry collector over OTLP, with Pulsar's names (PIP-264)."""
