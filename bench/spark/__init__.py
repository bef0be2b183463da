"""The Spark source and sink, measured beside the connector that runs in the JVM."""
