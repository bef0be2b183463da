"""What runs now and then over all topics."""
