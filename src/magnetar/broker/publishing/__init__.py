"""Producers, and the checks that an entry passes before it is stored."""
