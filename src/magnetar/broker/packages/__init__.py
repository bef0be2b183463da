"""Packages: files by type, namespace, name and version, kept in ledgers."""
