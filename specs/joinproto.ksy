meta:
  id: joinproto
  title: Join channel of flodl clusters, one direction of a connection
  license: MIT
  ks-version: 0.9
  encoding: UTF-8
  endian: le
doc: |
  What one end of a join connection sends, in wire versions 2 and 4: the channel magic (the dialing
  end only), then frames until the stream ends.

  A frame is refused at the first thing that is wrong with it: magic, version, kind, length, then
  what its payload says.  Its tag is read and not checked, since that takes the key; so what is
  parsed here is not thereby authentic.  An end of stream inside a header is a clean end, inside a
  payload an error.

  A string that is not UTF-8 is an error too, which the runtimes of some languages do not tell.
doc-ref: joinproto.grammar, of which this is a second telling
params:
  - id: is_dialer
    type: bool
    doc: The bytes are those of the end that dialed, which sends the channel magic first.
seq:
  - id: channel_magic
    contents: [0xe3, 0x17, 0x0d, 0xf1]
    if: is_dialer
    doc: 0xF10D17E3, little-endian; it routes the connection and proves nothing.
  - id: frames
    type: frame
    if: _io.size - _io.pos >= sizeof<header>
    repeat: until
    repeat-until: _io.size - _io.pos < sizeof<header>
  - id: cut_header
    size-eos: true
    doc: The first bytes of a frame whose header is not whole; nothing, most of the time.
types:
  frame:
    seq:
      - id: header
        type: header
      - id: payload
        size: header.len_payload
        type:
          switch-on: header.kind
          cases:
            'frame_kind::join': payload(header.version)
        doc: A message; of another kind than Join, which has no business here, the bytes alone.
  header:
    seq:
      - id: magic
        type: u4
        valid: '0xf10d17c4'
      - id: version
        type: u4
        valid:
          any-of: [2, 4]
      - id: tag
        size: 8
        doc: |
          The first 8 bytes of HMAC-SHA256 over kind, length and payload, under a key of 16 bytes.
      - id: kind
        type: u4
        enum: frame_kind
        valid:
          any-of:
            - frame_kind::control
            - frame_kind::timing
            - frame_kind::metrics
            - frame_kind::reserved_4
            - frame_kind::reserved_5
            - frame_kind::rendezvous
            - frame_kind::join
      - id: len_payload
        type: u4
        valid:
          max: 16777216
  payload:
    params:
      - id: version
        type: u4
    seq:
      - id: number
        type: varint_u32
        valid:
          expr: _.value <= 5
      - id: message
        type:
          switch-on: number.value
          cases:
            0: hello(version)
            1: accept
            2: reject
            3: world_formed
            4: rank_exited
            5: abort
      - id: trailing
        size-eos: true
        doc: Bytes behind the message, which readers take and no writer sends.
    instances:
      message_type:
        value: number.value
        enum: message_type
  hello:
    params:
      - id: version
        type: u4
    seq:
      - id: host
        type: string
      - id: local_devices
        type: octets
      - id: gpus
        type: strings
      - id: libtorch
        type: string
      - id: dataset_sig
        size: 32
      - id: run_id
        type: option_string
        if: version == 4
      - id: nccl_version
        type: option_version
        if: version == 4
      - id: model_sig
        type: option_signature
        if: version == 4
  accept:
    seq:
      - id: ranks
        type: numbers
      - id: salt_hex
        type: option_string
      - id: formation_wait_secs
        type: varint_u64
  reject:
    seq:
      - id: reason
        type: string
  world_formed:
    seq:
      - id: envelope_hex
        type: string
      - id: relay_spec_hex
        type: option_string
  rank_exited:
    seq:
      - id: rank
        type: varint_u32
      - id: code
        type: zigzag_i32
        doc: Negative when a signal ended the rank.
  abort:
    seq:
      - id: reason
        type: string
  varint_u32:
    doc: |
      bincode's number of at most 32 bits: up to 250 in one byte, else a byte that says how wide the
      value behind it is.  More bytes than a value needs are taken.
    seq:
      - id: first
        type: u1
        valid:
          max: 252
      - id: wide
        type:
          switch-on: first
          cases:
            251: u2
            252: u4
        if: first > 250
    instances:
      value:
        value: 'first <= 250 ? first : wide'
  varint_u64:
    doc: The same of at most 64 bits.
    seq:
      - id: first
        type: u1
        valid:
          max: 253
      - id: wide
        type:
          switch-on: first
          cases:
            251: u2
            252: u4
            253: u8
        if: first > 250
    instances:
      value:
        value: 'first <= 250 ? first : wide'
  zigzag_i32:
    doc: A signed number, as twice its value, or as twice its distance from zero less one.
    seq:
      - id: raw
        type: varint_u32
    instances:
      half:
        value: (raw.value / 2).as<s4>
      value:
        value: 'raw.value % 2 == 0 ? half : -1 - half'
  string:
    seq:
      - id: len
        type: varint_u64
        valid:
          expr: _.value <= _io.size - _io.pos
      - id: value
        type: str
        size: len.value
  strings:
    seq:
      - id: count
        type: varint_u64
        valid:
          expr: _.value <= _io.size - _io.pos
      - id: entries
        type: string
        repeat: expr
        repeat-expr: count.value
  numbers:
    seq:
      - id: count
        type: varint_u64
        valid:
          expr: _.value <= _io.size - _io.pos
      - id: entries
        type: varint_u32
        repeat: expr
        repeat-expr: count.value
  octets:
    seq:
      - id: count
        type: varint_u64
        valid:
          expr: _.value <= _io.size - _io.pos
      - id: entries
        type: u1
        repeat: expr
        repeat-expr: count.value
  option_string:
    seq:
      - id: is_there
        type: u1
        valid:
          any-of: [0, 1]
      - id: value
        type: string
        if: is_there == 1
  option_version:
    seq:
      - id: is_there
        type: u1
        valid:
          any-of: [0, 1]
      - id: value
        type: three_numbers
        if: is_there == 1
  option_signature:
    seq:
      - id: is_there
        type: u1
        valid:
          any-of: [0, 1]
      - id: value
        size: 32
        if: is_there == 1
  three_numbers:
    seq:
      - id: major
        type: varint_u32
      - id: minor
        type: varint_u32
      - id: patch
        type: varint_u32
enums:
  frame_kind:
    1: control
    2: timing
    3: metrics
    4: reserved_4
    5: reserved_5
    6: rendezvous
    7: join
  message_type:
    0: hello
    1: accept
    2: reject
    3: world_formed
    4: rank_exited
    5: abort
