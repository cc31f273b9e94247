"""The agent's spec: hex of JSON in an environment variable."""

from __future__ import annotations

import json
from typing import Any

from making.book import Book

SALT = "07" * 16
SIGNATURE = "ab" * 32
MINIMAL: dict[str, Any] = {"host": "h", "controller_host": "127.0.0.1", "controller_port": 9}
DEFAULTS: dict[str, Any] = {
    "salt_hex": None,
    "local_devices": None,
    "libtorch": "",
    "dataset_sig_hex": None,
    "run_id": None,
    "data_path": None,
    "gpu_ram_share": None,
    "model_sig_hex": None,
}
ONE: dict[str, Any] = MINIMAL | {"local_devices": [0]}
CLAUSE_OF_FLAG = {
    "ArrayForm": "spec-array",
    "RepeatedField": "spec-repeated",
    "Since08": "spec-08",
    "UnknownField": "spec-unknown",
    "WhiteSpace": "spec-white",
}
NULLS = "spec-null"
LEFT_TO_THE_CONTROLLER = "spec-lenient"


def agent_spec_book() -> Book:
    """Texts of the variable."""
    book = Book(
        "agent-spec",
        "The text of FLODL_INTERNAL_AGENT_JSON: the spec that it holds, absent fields with their"
        " defaults.  `document` is the JSON inside, where there is some that is text.  `stage` is"
        " the first step that fails: hex, json (what it is made of, and its fields' types),"
        " no-devices, salt, signature.",
    )
    _Specs(book).add_all()
    return book


class _Specs:
    def __init__(self, book: Book) -> None:
        self.book = book

    def text(
        self,
        comment: str,
        text: str,
        *flags: str,
        stage: str | None = None,
        value: dict[str, Any] | None = None,
        document: str | None = None,
        clause: str = "",
    ) -> None:
        """A case by the very text of the variable."""
        reasons = [CLAUSE_OF_FLAG[flag] for flag in flags if flag in CLAUSE_OF_FLAG]
        reasons += [f"spec-{stage}"] if stage else []
        given: dict[str, Any] = {"text": text}
        if document is not None:
            given["document"] = document
        self.book.add(
            "agent-spec",
            comment,
            clause=" ".join((clause or "spec", *reasons)),
            given=given,
            result="invalid" if stage else "valid",
            stage=stage,
            flags=flags,
            then={} if stage else {"value": DEFAULTS | (value or {})},
        )

    def good(
        self, comment: str, fields: dict[str, Any], *flags: str, clause: str = "", **changed: Any
    ) -> None:
        """A spec that says `fields`, and means them but for `changed`."""
        document = json.dumps(fields)
        value = {name: fields[name] for name in fields if name in MINIMAL | DEFAULTS} | changed
        text = document.encode().hex()
        self.text(comment, text, *flags, value=value, document=document, clause=clause)

    def raw(
        self,
        comment: str,
        document: str,
        stage: str | None,
        *flags: str,
        clause: str = "",
        **value: Any,
    ) -> None:
        """A case by its JSON text, or what stands in its place."""
        text = document.encode().hex()
        self.text(comment, text, *flags, stage=stage, value=value, document=document, clause=clause)

    def bad(self, comment: str, stage: str, *flags: str, **fields: Any) -> None:
        """A spec with some fields that are wrong."""
        clause = NULLS if None in fields.values() else ""
        self.raw(comment, json.dumps(ONE | fields), stage, *flags, clause=clause)

    def add_all(self) -> None:
        self.good_ones()
        self.devices()
        self.hexes()
        self.documents()
        self.types()
        self.salts()
        self.signatures()
        self.arrays()
        self.orders()
        self.since_08()

    def good_ones(self) -> None:
        self.good("address only: every other field has a default", MINIMAL, clause="spec-fields")
        everything = MINIMAL | {
            "salt_hex": SALT,
            "local_devices": [0, 1],
            "libtorch": "builds/sm61-sm120",
            "dataset_sig_hex": SIGNATURE,
        }
        self.good("every field of 0.7", everything)
        self.good("an unknown field", ONE | {"x": 1}, "UnknownField")
        self.good(
            "an unknown field that holds much", ONE | {"x": {"y": [1, {"host": 7}]}}, "UnknownField"
        )
        nulls = {"salt_hex": None, "local_devices": None, "dataset_sig_hex": None}
        self.good("nulls for the optional fields", MINIMAL | nulls, clause=NULLS)
        self.good(
            "empty host: the controller will reject it",
            MINIMAL | {"host": "", "local_devices": [0]},
            clause=LEFT_TO_THE_CONTROLLER,
        )
        self.good("port 0", ONE | {"controller_port": 0})
        self.good("port 65535", ONE | {"controller_port": 65535})
        self.good("an IPv6 address, without brackets", ONE | {"controller_host": "::1"})
        self.good("non-ASCII host", ONE | {"host": "höst"})
        self.good(
            "a host of a character beyond 16 bits, as two escapes", ONE | {"host": "\U0001f680"}
        )
        white = ONE | {"salt_hex": " " + "00" * 16 + "\n"}
        self.good("salt_hex with white space around it", white, "WhiteSpace", salt_hex="00" * 16)
        white = ONE | {"dataset_sig_hex": " " + "00" * 32}
        self.good(
            "dataset_sig_hex with white space around it",
            white,
            "WhiteSpace",
            dataset_sig_hex="00" * 32,
        )
        upper = ONE | {"salt_hex": "AB" * 16}
        self.good("upper-case salt_hex", upper, salt_hex="ab" * 16)
        twice = '{"x":1,"x":2,"host":"h","controller_host":"127.0.0.1","controller_port":9'
        twice += ',"local_devices":[0]}'
        self.raw("an unknown field twice", twice, None, "UnknownField", "RepeatedField", **ONE)
        spread = ' {"host"\n:"h",\t"controller_host":"127.0.0.1",\r"controller_port" : 1 } '
        self.raw(
            "white space between its parts",
            spread,
            None,
            host="h",
            controller_host="127.0.0.1",
            controller_port=1,
        )

    def devices(self) -> None:
        self.good(
            "the same device twice: the controller will reject it",
            ONE | {"local_devices": [0, 0]},
            clause=LEFT_TO_THE_CONTROLLER,
        )
        self.good("device 255", ONE | {"local_devices": [255]})
        self.good("256 devices", ONE | {"local_devices": list(range(256))})
        self.bad("no devices offered", "no-devices", local_devices=[])

    def hexes(self) -> None:
        document = json.dumps(ONE)
        digits = document.encode().hex()
        self.text("upper-case hex", digits.upper(), value=ONE, document=document)
        self.text(
            "white space around the hex", f" {digits}\n", "WhiteSpace", value=ONE, document=document
        )
        self.text("an odd number of digits", json.dumps(MINIMAL).encode().hex()[:-1], stage="hex")
        self.text("not hex", "zz", stage="hex")
        self.text("JSON that was not hex-encoded", json.dumps(MINIMAL), stage="hex")
        self.text(
            "white space between the digits",
            digits[:10] + " " + digits[10:],
            "WhiteSpace",
            stage="hex",
        )
        self.text("0x before the digits", "0x" + digits, stage="hex")
        self.text("base64", "eyJob3N0IjoiaCJ9", stage="hex")
        self.text("full-width digits", "\uff17\uff17", stage="hex")
        self.text("an empty variable", "", stage="json", document="")
        self.text("white space alone", " \t", "WhiteSpace", stage="json")

    def documents(self) -> None:
        plain = json.dumps(MINIMAL)
        for comment, document in (
            ("words behind the JSON", plain + " x"),
            ("two documents", plain + plain),
            ("cut short", plain[:-1]),
            ("NaN", '{"host":"a","controller_host":"h","controller_port":NaN}'),
            ("single quotes", plain.replace('"', "'")),
            ("a comma behind the last field", plain[:-1] + ",}"),
            ("a comment", plain + "//"),
            ("a lone surrogate", '{"host":"\\ud800","controller_host":"h","controller_port":9}'),
            (
                "a raw newline in a string",
                '{"host":"a\nb","controller_host":"h","controller_port":9}',
            ),
            ("null", "null"),
            ("a number", "7"),
            ("a string", '"h"'),
        ):
            self.raw(comment, document, "json")
        twice = '{"host":"a","host":"b","controller_host":"127.0.0.1","controller_port":9}'
        self.raw("the same field twice", twice, "json", "RepeatedField")
        for comment, data in (
            ("a byte order mark", b"\xef\xbb\xbf" + plain.encode()),
            ("not UTF-8", b'{"host":"\xff","controller_host":"h","controller_port":9}'),
            ("UTF-16", plain.encode("utf-16-le")),
        ):
            flags = ("InvalidUtf8",) if comment == "not UTF-8" else ()
            self.text(comment, data.hex(), *flags, stage="json")

    def types(self) -> None:
        for name in MINIMAL:
            left = {key: value for key, value in MINIMAL.items() if key != name}
            self.raw(f"{name} missing", json.dumps(left), "json")
        for port in (70000, -1, "9", 9.0, True, None):
            document = json.dumps(MINIMAL | {"controller_port": port})
            self.raw(f"controller_port {json.dumps(port)}", document, "json")
        for name, value in (
            ("local_devices", [256]),
            ("local_devices", [-1]),
            ("local_devices", "all"),
            ("local_devices", [0.0]),
            ("local_devices", [True]),
            ("local_devices", 0),
            ("local_devices", ["0"]),
            ("libtorch", None),
            ("libtorch", 7),
            ("host", None),
            ("host", ["h"]),
            ("controller_host", 7),
            ("salt_hex", 7),
            ("dataset_sig_hex", []),
        ):
            self.bad(f"{name} {json.dumps(value)}", "json", **{name: value})

    def salts(self) -> None:
        for comment, salt in (
            ("1 byte", "00"),
            ("empty", ""),
            ("17 bytes", "07" * 17),
            ("31 digits", "0" * 31),
            ("not hex", "z" * 32),
            ("digits with blanks between", "07 " * 16),
        ):
            self.bad(f"salt_hex: {comment}", "salt", salt_hex=salt)

    def signatures(self) -> None:
        for comment, signature in (
            ("1 byte", "00"),
            ("empty", ""),
            ("33 bytes", "ab" * 33),
            ("not hex", "z" * 64),
            ("63 digits", "0" * 63),
        ):
            self.bad(f"dataset_sig_hex: {comment}", "signature", dataset_sig_hex=signature)

    def arrays(self) -> None:
        seven = '["h","127.0.0.1",9,null,[0],"",null]'
        self.raw("the fields of 0.7 as an array", seven, None, "ArrayForm", **ONE)
        self.raw(
            "an array of the three fields that must be",
            '["h","127.0.0.1",9]',
            None,
            "ArrayForm",
            **MINIMAL,
        )
        self.raw("an array of two", '["h","127.0.0.1"]', "json", "ArrayForm")
        self.raw("an array in another order", '[9,"h","127.0.0.1"]', "json", "ArrayForm")
        self.raw("an array in an array", '[["h","127.0.0.1",9]]', "json", "ArrayForm")

    def orders(self) -> None:
        wrong = {"salt_hex": "00", "local_devices": [], "dataset_sig_hex": "00"}
        flag = "OrderOfChecks"
        self.bad("types before all else", "json", flag, **wrong, libtorch=1)
        self.bad("devices before the salt", "no-devices", flag, **wrong)
        self.bad("the salt before signatures", "salt", flag, **wrong | {"local_devices": [0]})

    def since_08(self) -> None:
        flag = "Since08"
        new = {"run_id": "r", "data_path": "/d", "gpu_ram_share": 0.5, "model_sig_hex": SIGNATURE}
        self.good("every field of 0.8", ONE | new, flag)
        self.good("a share that is a whole number", ONE | {"gpu_ram_share": 1}, flag)
        nulls = dict.fromkeys(new)
        self.good("nulls for the fields of 0.8", ONE | nulls, flag, clause=NULLS)
        whole = ["h", "127.0.0.1", 9, SALT, [0], "cu128", SIGNATURE, "r", "/d", 0.5, SIGNATURE]
        values: dict[str, Any] = dict(zip((*MINIMAL, *DEFAULTS), whole, strict=True))
        self.raw(
            "all as an array",
            json.dumps(whole),
            None,
            flag,
            "ArrayForm",
            **values,
        )
        self.raw("an array of one too many", json.dumps([*whole, 1]), "json", flag, "ArrayForm")
        for name, value in (
            ("run_id", 1),
            ("data_path", ["/d"]),
            ("gpu_ram_share", "0.5"),
            ("gpu_ram_share", True),
            ("model_sig_hex", 1),
        ):
            self.bad(f"{name} {json.dumps(value)}", "json", flag, **{name: value})
        self.bad("model_sig_hex: 1 byte", "signature", flag, model_sig_hex="01")
        self.bad("model_sig_hex: not hex", "signature", flag, model_sig_hex="z" * 64)
