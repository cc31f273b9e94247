"""`python -m joinproto` does what the command `joinproto` does."""

from __future__ import annotations

import sys

from joinproto.cli import main

if __name__ == "__main__":
    sys.exit(main())
