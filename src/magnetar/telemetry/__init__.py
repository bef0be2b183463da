"""Sends metrics to an OpenTelemetry collector (OTLP), with Pulsar's names (PIP-264)."""
