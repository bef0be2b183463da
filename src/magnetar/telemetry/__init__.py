"""Figures sent to an OpenTelemetry collector (OTLP), under the names that Pulsar has for them (PIP-264)."""
