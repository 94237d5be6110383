"""Owns the attempts to get out of a sandbox. The host reads the list; only a sandbox runs them."""

from . import kernel, others, outside, roots
from .kit import ATTEMPTS

__all__ = ["ATTEMPTS", "kernel", "others", "outside", "roots"]
