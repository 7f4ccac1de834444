"""A store on another machine, asked over HTTP. (I2)"""

from .store import HttpStore

__all__ = ["HttpStore"]
