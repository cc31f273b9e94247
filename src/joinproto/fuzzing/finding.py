"""A finding: a case in which a target did something wrong, as one file that anybody can replay."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from joinproto.conformance.results import Happening, happenings_of
from joinproto.fuzzing.oracles import ORACLES, Strike
from joinproto.fuzzing.sequence import Sequence

FORMAT: Final = 1
"""Of the file; another number, another meaning."""

_SEEN: Final = ("exit", "stderr", "happenings")
_PLAIN: Final[Mapping[str, type | tuple[type, ...]]] = {
    "seed": int,
    "number": int,
    "scale": (int, float),
    "repeats": int,
    "found": int,
    "tried": int,
    "target": str,
    "versions": dict,
}
_KEYS: Final = {"format", "id", "bucket", "clause", "case", "strike", *_PLAIN, *_SEEN}


def versions() -> dict[str, str]:
    """What the harness runs on."""
    return {
        "joinproto": version("joinproto"),
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
    }


@dataclass(frozen=True, kw_only=True)
class Finding:
    """See the module's first line.

    Attributes:
        sequence: the case, as small as it could be made.
        strike: what is wrong.
        seed: of the run that found it.
        number: of the case within that run.
        scale: of every network deadline, then.
        repeats: how often the case is played against one target before it strikes.
        found: how often it was found again …
        tried: … in so many tries.
        target: the command of the target, or its address.
        versions: of what the harness ran on.
        exit: how the target ended, −N by signal N; None: it did not.
        stderr: the last of what it said there.
        happenings: everything that was seen the last time, every byte with its time.
    """

    sequence: Sequence
    strike: Strike
    seed: int
    number: int
    scale: float
    repeats: int = 1
    found: int = 0
    tried: int = 0
    target: str = ""
    versions: Mapping[str, str] = field(default_factory=versions)
    exit: int | None = None
    stderr: str = ""
    happenings: tuple[Happening, ...] = ()

    @property
    def bucket(self) -> str:
        """One fault is one finding."""
        return self.strike.bucket

    @property
    def flaky(self) -> bool:
        """It was not found again in every try."""
        return self.found < self.tried

    @property
    def id(self) -> str:
        """A name that is the same for the same fault."""
        # What a target wrote may be no text; a name is made of it all the same.
        told = f"{self.sequence.role} {self.bucket}".encode(errors="backslashreplace")
        digest = hashlib.sha256(told).hexdigest()
        return f"{self.sequence.role}-{self.strike.oracle}-{digest[:8]}"

    @property
    def summary(self) -> str:
        """One line for people."""
        flaky = f" (flaky: {self.found} of {self.tried} tries)" if self.flaky else ""
        where = f" [{self.strike.where}]" if self.strike.where else ""
        return f"{ORACLES[self.strike.oracle]}: {self.strike.what}{where}{flaky}"

    def to_json(self) -> dict[str, Any]:
        """It as plain data, as `specs/fuzz-finding.schema.json` says."""
        return {
            "format": FORMAT,
            "id": self.id,
            "bucket": self.bucket,
            "clause": self.strike.clause,
            "strike": asdict(self.strike),
            "case": self.sequence.to_json(),
            **{name: getattr(self, name) for name in _PLAIN if name != "versions"},
            "versions": dict(self.versions),
            "exit": self.exit,
            "stderr": self.stderr,
            "happenings": [asdict(each) for each in self.happenings],
        }

    @classmethod
    def from_json(cls, values: object) -> Finding:
        """It out of plain data.

        Raises:
            ValueError: these are no values of a finding; the text says why.
        """
        if not isinstance(values, dict):
            raise ValueError("a finding is a JSON object")
        if values.get("format") != FORMAT:
            raise ValueError(f"format {values.get('format')!r}; this joinproto reads {FORMAT}")
        if wrong := _KEYS ^ values.keys():
            missing = _KEYS - values.keys()
            raise ValueError(f"{'no' if missing else 'unknown'} member {min(missing or wrong)!r}")
        for name, kind in _PLAIN.items():
            if not isinstance(values[name], kind) or isinstance(values[name], bool):
                raise ValueError(f"member {name!r} cannot be {values[name]!r}")
        try:
            strike = Strike(**values["strike"])
            happenings = happenings_of(values["happenings"])
            ended = values["exit"] if values["exit"] is None else int(values["exit"])
        except (TypeError, ValueError) as error:
            raise ValueError(f"not a finding: {error}") from None
        if strike.oracle not in ORACLES:
            raise ValueError(f"oracle {strike.oracle!r}; there are {', '.join(ORACLES)}")
        return cls(
            sequence=Sequence.from_json(values["case"]),
            strike=strike,
            exit=ended,
            stderr=str(values["stderr"]),
            happenings=happenings,
            **{name: values[name] for name in _PLAIN},
        )

    def write(self, folder: Path) -> Path:
        """Write it into a folder, and return where.

        Raises:
            OSError: it cannot be written.
        """
        path = folder / f"{self.id}.json"
        path.write_text(json.dumps(self.to_json(), indent=1) + "\n", encoding="utf-8")
        return path


def read(path: Path) -> Finding:
    """A finding out of a file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is none; the text says why.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from None
    return Finding.from_json(values)
