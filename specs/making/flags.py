"""What a case may be flagged with, and what that means."""

from __future__ import annotations

FLAGS = {
    "Abort": "The controller gives the run up.",
    "AnnouncedLength": (
        "A length or count promises more than the bytes that are left can hold.  It is refused by"
        " comparing it with them, before anything is allocated."
    ),
    "ArrayForm": "The spec is a JSON array, its values in the order of the published fields.",
    "BadOption": "The first byte of an option is neither 0 nor 1.",
    "BitFlip": "One bit of a good frame is turned over.",
    "CutShort": "Bytes are missing at the end of the payload.",
    "EndOfStream": (
        "The stream ends between two frames or inside the 24 header bytes.  That is its clean end"
        " and no error."
    ),
    "FailedRank": "A rank ends with another code than 0.  That is not its agent's failure.",
    "FreeReason": (
        "The wording of the Reject is the controller's own: hold its type and its tag against the"
        " case, not its bytes."
    ),
    "HostileAgent": "The agent's bytes are the attack or the fault; the controller is tested.",
    "HostileController": "The controller's bytes are the attack or the fault; the agent is tested.",
    "Ignored": "What is wrong is told and skipped; the connection goes on.",
    "InvalidUtf8": "A string's bytes are not UTF-8.",
    "LargeInteger": "A number above 2^53: read it as an integer, not as a double.",
    "LargePayload": "At least 1 MiB; written with repetitions, and worth a look at memory.",
    "MoreBytes": "Bytes of the stream behind the frame are not its own and are left for the next.",
    "NoWayBack": "The stream cannot be read further: where the next frame begins is not known.",
    "NonMinimalVarint": "A number is written in more bytes than it needs.",
    "OpenAdmission": "Hello, Accept and Reject are tagged with 16 zero bytes.",
    "OrderOfChecks": "Several things are wrong; the stage is that of the first check.",
    "OtherKind": (
        "The frame is well formed and rightly tagged, but of another channel.  A reader of frames"
        " takes it; the join channel refuses it."
    ),
    "OtherWire": "The payload is that of another wire version than the header says.",
    "PreShared": "Both ends hold the session salt before they meet, and it tags every frame.",
    "PublishedDecoderDies": "The published decoders panic or run out of memory here.",
    "Relay": "The controller asks for a relay besides the ranks.",
    "Reject": "The host is turned away.",
    "RepeatedField": "A field of the spec is given twice.",
    "SeveralHosts": "More than one host joins.",
    "Signalled": "A rank is ended by signal N and reported with code -N.",
    "Since08": "A field of the spec that flodl 0.7 does not know, and so ignores.",
    "TrailingBytes": "The payload goes on behind the value.",
    "UnknownField": "A field that no publication has.  It is ignored.",
    "UnknownKind": "The header's kind is not one of 1 to 7.",
    "UnknownVariant": "The message number is not one of 0 to 5.",
    "UnknownVersion": "The header's version is not the one that is spoken.",
    "VarintMarker": "A number's first byte is 254 or 255, or says more bytes than its type has.",
    "WhiteSpace": "White space around hex digits is trimmed.",
    "WrongKey": "The frame is tagged rightly, with a key that is not the one in force.",
    "WrongMagic": "The header does not begin with the frame magic.",
    "WrongState": (
        "A well-formed message that has no business where it comes; its stage is `state`."
    ),
    "WrongTag": "The tag was not made from these bytes in the way it should be.",
}
