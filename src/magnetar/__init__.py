"""Magnetar: a messaging and streaming system that speaks Apache Pulsar's protocols."""

from magnetar.hot import install as _install_hot_modules

__version__ = "0.1.0"

_install_hot_modules()
