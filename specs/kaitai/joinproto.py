# This is a generated file! Please edit source .ksy file and use kaitai-struct-compiler to rebuild
# type: ignore

import kaitaistruct
from kaitaistruct import KaitaiStruct, KaitaiStream, BytesIO
from enum import IntEnum


if getattr(kaitaistruct, 'API_VERSION', (0, 9)) < (0, 11):
    raise Exception("Incompatible Kaitai Struct Python API: 0.11 or later is required, but you have %s" % (kaitaistruct.__version__))

class Joinproto(KaitaiStruct):
    """What one end of a join connection sends, in wire versions 2 and 4: the channel magic (the dialing
    end only), then frames until the stream ends.
    
    A frame is refused at the first thing that is wrong with it: magic, version, kind, length, then
    what its payload says.  Its tag is read and not checked, since that takes the key; so what is
    parsed here is not thereby authentic.  An end of stream inside a header is a clean end, inside a
    payload an error.
    
    A string that is not UTF-8 is an error too, which the runtimes of some languages do not tell.
    
    .. seealso::
       joinproto.grammar, of which this is a second telling
    """

    class FrameKind(IntEnum):
        control = 1
        timing = 2
        metrics = 3
        reserved_4 = 4
        reserved_5 = 5
        rendezvous = 6
        join = 7

    class MessageType(IntEnum):
        hello = 0
        accept = 1
        reject = 2
        world_formed = 3
        rank_exited = 4
        abort = 5
    def __init__(self, is_dialer, _io, _parent=None, _root=None):
        super(Joinproto, self).__init__(_io)
        self._parent = _parent
        self._root = _root or self
        self.is_dialer = is_dialer
        self._read()

    def _read(self):
        if self.is_dialer:
            pass
            self.channel_magic = self._io.read_bytes(4)
            if not self.channel_magic == b"\xE3\x17\x0D\xF1":
                raise kaitaistruct.ValidationNotEqualError(b"\xE3\x17\x0D\xF1", self.channel_magic, self._io, u"/seq/0")

        if self._io.size() - self._io.pos() >= 24:
            pass
            self.frames = []
            i = 0
            while True:
                _ = Joinproto.Frame(self._io, self, self._root)
                self.frames.append(_)
                if self._io.size() - self._io.pos() < 24:
                    break
                i += 1

        self.cut_header = self._io.read_bytes_full()


    def _fetch_instances(self):
        pass
        if self.is_dialer:
            pass

        if self._io.size() - self._io.pos() >= 24:
            pass
            for i in range(len(self.frames)):
                pass
                self.frames[i]._fetch_instances()



    class Abort(KaitaiStruct):
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.Abort, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.reason = Joinproto.String(self._io, self, self._root)


        def _fetch_instances(self):
            pass
            self.reason._fetch_instances()


    class Accept(KaitaiStruct):
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.Accept, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.ranks = Joinproto.Numbers(self._io, self, self._root)
            self.salt_hex = Joinproto.OptionString(self._io, self, self._root)
            self.formation_wait_secs = Joinproto.VarintU64(self._io, self, self._root)


        def _fetch_instances(self):
            pass
            self.ranks._fetch_instances()
            self.salt_hex._fetch_instances()
            self.formation_wait_secs._fetch_instances()


    class Frame(KaitaiStruct):
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.Frame, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.header = Joinproto.Header(self._io, self, self._root)
            _on = self.header.kind
            if _on == Joinproto.FrameKind.join:
                pass
                self._raw_payload = self._io.read_bytes(self.header.len_payload)
                _io__raw_payload = KaitaiStream(BytesIO(self._raw_payload))
                self.payload = Joinproto.Payload(self.header.version, _io__raw_payload, self, self._root)
            else:
                pass
                self.payload = self._io.read_bytes(self.header.len_payload)


        def _fetch_instances(self):
            pass
            self.header._fetch_instances()
            _on = self.header.kind
            if _on == Joinproto.FrameKind.join:
                pass
                self.payload._fetch_instances()
            else:
                pass


    class Header(KaitaiStruct):
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.Header, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.magic = self._io.read_u4le()
            if not self.magic == 4044167108:
                raise kaitaistruct.ValidationNotEqualError(4044167108, self.magic, self._io, u"/types/header/seq/0")
            self.version = self._io.read_u4le()
            if not  ((self.version == 2) or (self.version == 4)) :
                raise kaitaistruct.ValidationNotAnyOfError(self.version, self._io, u"/types/header/seq/1")
            self.tag = self._io.read_bytes(8)
            self.kind = KaitaiStream.resolve_enum(Joinproto.FrameKind, self._io.read_u4le())
            if not  ((self.kind == Joinproto.FrameKind.control) or (self.kind == Joinproto.FrameKind.timing) or (self.kind == Joinproto.FrameKind.metrics) or (self.kind == Joinproto.FrameKind.reserved_4) or (self.kind == Joinproto.FrameKind.reserved_5) or (self.kind == Joinproto.FrameKind.rendezvous) or (self.kind == Joinproto.FrameKind.join)) :
                raise kaitaistruct.ValidationNotAnyOfError(self.kind, self._io, u"/types/header/seq/3")
            self.len_payload = self._io.read_u4le()
            if not self.len_payload <= 16777216:
                raise kaitaistruct.ValidationGreaterThanError(16777216, self.len_payload, self._io, u"/types/header/seq/4")


        def _fetch_instances(self):
            pass


    class Hello(KaitaiStruct):
        def __init__(self, version, _io, _parent=None, _root=None):
            super(Joinproto.Hello, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self.version = version
            self._read()

        def _read(self):
            self.host = Joinproto.String(self._io, self, self._root)
            self.local_devices = Joinproto.Octets(self._io, self, self._root)
            self.gpus = Joinproto.Strings(self._io, self, self._root)
            self.libtorch = Joinproto.String(self._io, self, self._root)
            self.dataset_sig = self._io.read_bytes(32)
            if self.version == 4:
                pass
                self.run_id = Joinproto.OptionString(self._io, self, self._root)

            if self.version == 4:
                pass
                self.nccl_version = Joinproto.OptionVersion(self._io, self, self._root)

            if self.version == 4:
                pass
                self.model_sig = Joinproto.OptionSignature(self._io, self, self._root)



        def _fetch_instances(self):
            pass
            self.host._fetch_instances()
            self.local_devices._fetch_instances()
            self.gpus._fetch_instances()
            self.libtorch._fetch_instances()
            if self.version == 4:
                pass
                self.run_id._fetch_instances()

            if self.version == 4:
                pass
                self.nccl_version._fetch_instances()

            if self.version == 4:
                pass
                self.model_sig._fetch_instances()



    class Numbers(KaitaiStruct):
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.Numbers, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.count = Joinproto.VarintU64(self._io, self, self._root)
            _ = self.count
            if not _.value <= self._io.size() - self._io.pos():
                raise kaitaistruct.ValidationExprError(self.count, self._io, u"/types/numbers/seq/0")
            self.entries = []
            for i in range(self.count.value):
                self.entries.append(Joinproto.VarintU32(self._io, self, self._root))



        def _fetch_instances(self):
            pass
            self.count._fetch_instances()
            for i in range(len(self.entries)):
                pass
                self.entries[i]._fetch_instances()



    class Octets(KaitaiStruct):
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.Octets, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.count = Joinproto.VarintU64(self._io, self, self._root)
            _ = self.count
            if not _.value <= self._io.size() - self._io.pos():
                raise kaitaistruct.ValidationExprError(self.count, self._io, u"/types/octets/seq/0")
            self.entries = []
            for i in range(self.count.value):
                self.entries.append(self._io.read_u1())



        def _fetch_instances(self):
            pass
            self.count._fetch_instances()
            for i in range(len(self.entries)):
                pass



    class OptionSignature(KaitaiStruct):
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.OptionSignature, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.is_there = self._io.read_u1()
            if not  ((self.is_there == 0) or (self.is_there == 1)) :
                raise kaitaistruct.ValidationNotAnyOfError(self.is_there, self._io, u"/types/option_signature/seq/0")
            if self.is_there == 1:
                pass
                self.value = self._io.read_bytes(32)



        def _fetch_instances(self):
            pass
            if self.is_there == 1:
                pass



    class OptionString(KaitaiStruct):
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.OptionString, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.is_there = self._io.read_u1()
            if not  ((self.is_there == 0) or (self.is_there == 1)) :
                raise kaitaistruct.ValidationNotAnyOfError(self.is_there, self._io, u"/types/option_string/seq/0")
            if self.is_there == 1:
                pass
                self.value = Joinproto.String(self._io, self, self._root)



        def _fetch_instances(self):
            pass
            if self.is_there == 1:
                pass
                self.value._fetch_instances()



    class OptionVersion(KaitaiStruct):
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.OptionVersion, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.is_there = self._io.read_u1()
            if not  ((self.is_there == 0) or (self.is_there == 1)) :
                raise kaitaistruct.ValidationNotAnyOfError(self.is_there, self._io, u"/types/option_version/seq/0")
            if self.is_there == 1:
                pass
                self.value = Joinproto.ThreeNumbers(self._io, self, self._root)



        def _fetch_instances(self):
            pass
            if self.is_there == 1:
                pass
                self.value._fetch_instances()



    class Payload(KaitaiStruct):
        def __init__(self, version, _io, _parent=None, _root=None):
            super(Joinproto.Payload, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self.version = version
            self._read()

        def _read(self):
            self.number = Joinproto.VarintU32(self._io, self, self._root)
            _ = self.number
            if not _.value <= 5:
                raise kaitaistruct.ValidationExprError(self.number, self._io, u"/types/payload/seq/0")
            _on = self.number.value
            if _on == 0:
                pass
                self.message = Joinproto.Hello(self.version, self._io, self, self._root)
            elif _on == 1:
                pass
                self.message = Joinproto.Accept(self._io, self, self._root)
            elif _on == 2:
                pass
                self.message = Joinproto.Reject(self._io, self, self._root)
            elif _on == 3:
                pass
                self.message = Joinproto.WorldFormed(self._io, self, self._root)
            elif _on == 4:
                pass
                self.message = Joinproto.RankExited(self._io, self, self._root)
            elif _on == 5:
                pass
                self.message = Joinproto.Abort(self._io, self, self._root)
            self.trailing = self._io.read_bytes_full()


        def _fetch_instances(self):
            pass
            self.number._fetch_instances()
            _on = self.number.value
            if _on == 0:
                pass
                self.message._fetch_instances()
            elif _on == 1:
                pass
                self.message._fetch_instances()
            elif _on == 2:
                pass
                self.message._fetch_instances()
            elif _on == 3:
                pass
                self.message._fetch_instances()
            elif _on == 4:
                pass
                self.message._fetch_instances()
            elif _on == 5:
                pass
                self.message._fetch_instances()

        @property
        def message_type(self):
            if hasattr(self, '_m_message_type'):
                return self._m_message_type

            self._m_message_type = KaitaiStream.resolve_enum(Joinproto.MessageType, self.number.value)
            return getattr(self, '_m_message_type', None)


    class RankExited(KaitaiStruct):
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.RankExited, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.rank = Joinproto.VarintU32(self._io, self, self._root)
            self.code = Joinproto.ZigzagI32(self._io, self, self._root)


        def _fetch_instances(self):
            pass
            self.rank._fetch_instances()
            self.code._fetch_instances()


    class Reject(KaitaiStruct):
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.Reject, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.reason = Joinproto.String(self._io, self, self._root)


        def _fetch_instances(self):
            pass
            self.reason._fetch_instances()


    class String(KaitaiStruct):
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.String, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.len = Joinproto.VarintU64(self._io, self, self._root)
            _ = self.len
            if not _.value <= self._io.size() - self._io.pos():
                raise kaitaistruct.ValidationExprError(self.len, self._io, u"/types/string/seq/0")
            self.value = (self._io.read_bytes(self.len.value)).decode(u"UTF-8")


        def _fetch_instances(self):
            pass
            self.len._fetch_instances()


    class Strings(KaitaiStruct):
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.Strings, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.count = Joinproto.VarintU64(self._io, self, self._root)
            _ = self.count
            if not _.value <= self._io.size() - self._io.pos():
                raise kaitaistruct.ValidationExprError(self.count, self._io, u"/types/strings/seq/0")
            self.entries = []
            for i in range(self.count.value):
                self.entries.append(Joinproto.String(self._io, self, self._root))



        def _fetch_instances(self):
            pass
            self.count._fetch_instances()
            for i in range(len(self.entries)):
                pass
                self.entries[i]._fetch_instances()



    class ThreeNumbers(KaitaiStruct):
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.ThreeNumbers, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.major = Joinproto.VarintU32(self._io, self, self._root)
            self.minor = Joinproto.VarintU32(self._io, self, self._root)
            self.patch = Joinproto.VarintU32(self._io, self, self._root)


        def _fetch_instances(self):
            pass
            self.major._fetch_instances()
            self.minor._fetch_instances()
            self.patch._fetch_instances()


    class VarintU32(KaitaiStruct):
        """bincode's number of at most 32 bits: up to 250 in one byte, else a byte that says how wide the
        value behind it is.  More bytes than a value needs are taken.
        """
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.VarintU32, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.first = self._io.read_u1()
            if not self.first <= 252:
                raise kaitaistruct.ValidationGreaterThanError(252, self.first, self._io, u"/types/varint_u32/seq/0")
            if self.first > 250:
                pass
                _on = self.first
                if _on == 251:
                    pass
                    self.wide = self._io.read_u2le()
                elif _on == 252:
                    pass
                    self.wide = self._io.read_u4le()



        def _fetch_instances(self):
            pass
            if self.first > 250:
                pass
                _on = self.first
                if _on == 251:
                    pass
                elif _on == 252:
                    pass


        @property
        def value(self):
            if hasattr(self, '_m_value'):
                return self._m_value

            self._m_value = (self.first if self.first <= 250 else self.wide)
            return getattr(self, '_m_value', None)


    class VarintU64(KaitaiStruct):
        """The same of at most 64 bits."""
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.VarintU64, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.first = self._io.read_u1()
            if not self.first <= 253:
                raise kaitaistruct.ValidationGreaterThanError(253, self.first, self._io, u"/types/varint_u64/seq/0")
            if self.first > 250:
                pass
                _on = self.first
                if _on == 251:
                    pass
                    self.wide = self._io.read_u2le()
                elif _on == 252:
                    pass
                    self.wide = self._io.read_u4le()
                elif _on == 253:
                    pass
                    self.wide = self._io.read_u8le()



        def _fetch_instances(self):
            pass
            if self.first > 250:
                pass
                _on = self.first
                if _on == 251:
                    pass
                elif _on == 252:
                    pass
                elif _on == 253:
                    pass


        @property
        def value(self):
            if hasattr(self, '_m_value'):
                return self._m_value

            self._m_value = (self.first if self.first <= 250 else self.wide)
            return getattr(self, '_m_value', None)


    class WorldFormed(KaitaiStruct):
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.WorldFormed, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.envelope_hex = Joinproto.String(self._io, self, self._root)
            self.relay_spec_hex = Joinproto.OptionString(self._io, self, self._root)


        def _fetch_instances(self):
            pass
            self.envelope_hex._fetch_instances()
            self.relay_spec_hex._fetch_instances()


    class ZigzagI32(KaitaiStruct):
        """A signed number, as twice its value, or as twice its distance from zero less one."""
        def __init__(self, _io, _parent=None, _root=None):
            super(Joinproto.ZigzagI32, self).__init__(_io)
            self._parent = _parent
            self._root = _root
            self._read()

        def _read(self):
            self.raw = Joinproto.VarintU32(self._io, self, self._root)


        def _fetch_instances(self):
            pass
            self.raw._fetch_instances()

        @property
        def half(self):
            if hasattr(self, '_m_half'):
                return self._m_half

            self._m_half = (self.raw.value // 2)
            return getattr(self, '_m_half', None)

        @property
        def value(self):
            if hasattr(self, '_m_value'):
                return self._m_value

            self._m_value = (self.half if self.raw.value % 2 == 0 else -1 - self.half)
            return getattr(self, '_m_value', None)



