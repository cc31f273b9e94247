"""`python -m joinproto` does what the command `joinproto` does."""

from __future__ import annotations

from joinproto.cli import entry

if __name__ == "__main__":
    entry()
