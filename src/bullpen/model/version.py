"""The version, where the hot path finds it without reading the package's metadata."""

__all__ = ["VERSION"]

VERSION = "0.1.0"
