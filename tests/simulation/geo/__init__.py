"""Clusters that replicate topics to each other, in one simulated world."""
