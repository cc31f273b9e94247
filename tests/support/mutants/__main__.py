"""`python -m tests.support.mutants ROLE NAME -- ARGS…`: our program with one fault."""

from __future__ import annotations

import sys

from joinproto.cli import main
from tests.support.mutants import mutant

if __name__ == "__main__":
    role, name, _, *arguments = sys.argv[1:]
    with mutant(role, name).change():
        code = main(arguments)
    sys.exit(code)
