"""The root of every error tree. Each room draws its own branch in its `errors.py`."""

__all__ = ["BullpenError"]


class BullpenError(Exception):
    """Something bullpen can name went wrong."""
