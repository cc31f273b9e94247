-- Wireshark dissector of the join channel of flodl clusters, wire versions 2 and 4.
--
-- It finds join connections by their first bytes, on any port; "Decode As" names a port by hand.
-- Tags are shown and not checked: Lua in Wireshark has no HMAC.

local join = Proto("joinproto", "flodl join channel")

-- What the bytes mean ---------------------------------------------------------------------------

local FRAME_MAGIC = 0xF10D17C4
local JOIN_MAGIC = 0xF10D17E3
local CHANNELS = {
  [0xF10D17E0] = "rendezvous",
  [0xF10D17E1] = "data",
  [0xF10D17E2] = "control",
  [JOIN_MAGIC] = "join",
}
local HTTP = {
  ["GET "] = true, ["HEAD"] = true, ["POST"] = true, ["PUT "] = true, ["DELE"] = true,
  ["OPTI"] = true, ["PATC"] = true, ["TRAC"] = true, ["HTTP"] = true,
}
local JOIN_KIND = 7
local KINDS = {
  "Control", "Timing", "Metrics", "Reserved4", "Reserved5", "Rendezvous", [JOIN_KIND] = "Join",
}
local HEADER = 24
local MAX_PAYLOAD = 16 * 1024 * 1024
local SIGNATURE = 32
local MESSAGES = {
  [0] = "Hello", "Accept", "Reject", "WorldFormed", "RankExited", "Abort",
}

local header = {
  channel = ProtoField.uint32("joinproto.channel", "Channel magic", base.HEX, CHANNELS),
  magic = ProtoField.uint32("joinproto.magic", "Magic", base.HEX),
  version = ProtoField.uint32("joinproto.version", "Wire version"),
  tag = ProtoField.bytes("joinproto.tag", "Tag (not checked)"),
  kind = ProtoField.uint32("joinproto.kind", "Kind", base.DEC, KINDS),
  length = ProtoField.uint32("joinproto.length", "Payload length"),
  payload = ProtoField.bytes("joinproto.payload", "Payload"),
  message = ProtoField.uint32("joinproto.message", "Message", base.DEC, MESSAGES),
  trailing = ProtoField.bytes("joinproto.trailing", "Bytes behind the message"),
}

local function complaint(name, text, group, severity)
  return ProtoExpert.new("joinproto." .. name, text, expert.group[group], expert.severity[severity])
end

local complaints = {
  magic = complaint("bad_magic", "Not the magic of a frame", "MALFORMED", "ERROR"),
  version = complaint("bad_version", "Wire version not known", "MALFORMED", "ERROR"),
  kind = complaint("bad_kind", "Kind not known", "MALFORMED", "ERROR"),
  length = complaint("too_long", "Payload longer than 16 MiB", "MALFORMED", "ERROR"),
  payload = complaint("bad_payload", "Payload that cannot be read", "MALFORMED", "ERROR"),
  cut = complaint("cut_off", "The stream ends inside a payload", "MALFORMED", "ERROR"),
  other_kind = complaint("other_kind", "Not a frame of the join channel", "PROTOCOL", "ERROR"),
  not_whole = complaint("not_whole", "Frame not whole in the capture", "UNDECODED", "WARN"),
  minimal = complaint("not_minimal", "Number in more bytes than it needs", "PROTOCOL", "NOTE"),
  trailing = complaint("trailing_bytes", "Bytes behind the message", "PROTOCOL", "NOTE"),
}

-- Reading a payload -----------------------------------------------------------------------------

-- A place in a payload, and what is to be told of it.
local Reader = {}
Reader.__index = Reader

function Reader.new(tvb, start, stop, tree)
  return setmetatable({ tvb = tvb, at = start, stop = stop, tree = tree }, Reader)
end

-- Give up on the payload. A table, so that no mistake of this script is taken for one of a peer.
function Reader:refuse(text, start)
  error({ text = text, at = start or self.at })
end

function Reader:take(size, what)
  local left = self.stop - self.at
  if size > left then
    self:refuse(("%s takes %.0f bytes, %d are left"):format(what, size, left))
  end
  local start = self.at
  self.at = start + size
  return self.tvb(start, size)
end

local SIZES = { [251] = 2, [252] = 4, [253] = 8 }
local LEAST = { [2] = 251, [4] = 0x10000, [8] = 0x100000000 }

-- A number of at most `size` bytes: its value (rounded beyond 2^53), where it stands, and, of eight
-- bytes, the value to the last bit.
function Reader:number(size)
  local start = self.at
  local first = self:take(1, "a number"):uint()
  if first <= 250 then
    return first, self.tvb(start, 1)
  end
  local width = SIZES[first]
  if not width or width > size then
    self:refuse(("marker %d in a number of %d bits"):format(first, 8 * size), start)
  end
  local range = self:take(width, "a number with marker " .. first)
  local exact = width == 8 and range:le_uint64() or nil
  local value = exact and exact:tonumber() or range:le_uint()
  local whole = self.tvb(start, 1 + width)
  if value < LEAST[width] then
    self.tree:add_proto_expert_info(complaints.minimal)
  end
  return value, whole, exact
end

-- An announced number of entries of at least a byte each.
function Reader:count(what)
  local start = self.at
  local count, range = self:number(8)
  local left = self.stop - self.at
  if count > left then
    self:refuse(("%.0f %s announced, %d bytes are left"):format(count, what, left), start)
  end
  return count, range
end

function Reader:is_there()
  local range = self:take(1, "an option")
  if range:uint() > 1 then
    self:refuse(("option byte %d, which is neither 0 nor 1"):format(range:uint()), self.at - 1)
  end
  return range:uint() == 1, range
end

-- Every well-formed sequence of UTF-8 beyond ASCII. First and later bytes have no value in common,
-- so what is left of a well-formed text when these are taken out is ASCII, and only then.
local UTF_8 = {
  "[\194-\223][\128-\191]",
  "\224[\160-\191][\128-\191]",
  "[\225-\236\238\239][\128-\191][\128-\191]",
  "\237[\128-\159][\128-\191]",
  "\240[\144-\191][\128-\191][\128-\191]",
  "[\241-\243][\128-\191][\128-\191][\128-\191]",
  "\244[\128-\143][\128-\191][\128-\191]",
}

local function is_utf_8(text)
  for _, sequence in ipairs(UTF_8) do
    if not text:find("[\128-\255]") then
      return true
    end
    text = text:gsub(sequence, ".")
  end
  return not text:find("[\128-\255]")
end

-- Types: how each is made a field of Wireshark, and read. `read` gives what the list of packets
-- shows of it.

local text = { make = ProtoField.string }

function text.read(reader, field)
  local size, range = reader:count("bytes of a string")
  if size == 0 then
    reader.tree:add(field, range, "")
    return ""
  end
  range = reader:take(size, "a string")
  local value = range:raw()
  if not is_utf_8(value) then
    reader:refuse("a string that is not UTF-8", reader.at - size)
  end
  reader.tree:add_packet_field(field, range, ENC_UTF_8)
  return value
end

local u32 = { make = ProtoField.uint32 }

function u32.read(reader, field)
  local value, range = reader:number(4)
  reader.tree:add(field, range, value)
  return ("%d"):format(value)
end

local u64 = { make = ProtoField.uint64 }

function u64.read(reader, field)
  local value, range, exact = reader:number(8)
  exact = exact or UInt64.new(value)
  reader.tree:add(field, range, exact)
  return tostring(exact)
end

-- Zigzag: twice the value, or twice its distance from zero less one.
local i32 = { make = ProtoField.int32 }

function i32.read(reader, field)
  local raw, range = reader:number(4)
  local half = math.floor(raw / 2)
  local value = raw % 2 == 0 and half or -1 - half
  reader.tree:add(field, range, value)
  return ("%d"):format(value)
end

local octet = { make = ProtoField.uint8 }

function octet.read(reader, field)
  local range = reader:take(1, "a byte")
  reader.tree:add(field, range)
  return ("%d"):format(range:uint())
end

local signature = { make = ProtoField.bytes }

function signature.read(reader, field)
  local range = reader:take(SIGNATURE, "a signature")
  reader.tree:add(field, range)
  return tostring(range:bytes())
end

-- Three numbers, shown as one text with dots.
local version = { make = ProtoField.string }

function version.read(reader, field)
  local start = reader.at
  local parts = {}
  for part = 1, 3 do
    parts[part] = ("%d"):format((reader:number(4)))
  end
  local value = table.concat(parts, ".")
  reader.tree:add(field, reader.tvb(start, reader.at - start), value)
  return value
end

local function list(entry)
  local kind = { make = entry.make }

  function kind.read(reader, field)
    local shown = {}
    for index = 1, (reader:count("entries")) do
      shown[index] = entry.read(reader, field)
    end
    return "[" .. table.concat(shown, ",") .. "]"
  end

  return kind
end

local function option(value)
  local kind = { make = value.make }

  function kind.read(reader, field, label)
    local there, range = reader:is_there()
    if there then
      return value.read(reader, field)
    end
    reader.tree:add(range, label .. ": none")
    return nil
  end

  return kind
end

-- Messages: one row a field, as name, label, type and, where the list of packets shows it, the name
-- that it has there ("" for none). A wire version is its payloads.

local function message(prefix, rows)
  for _, row in ipairs(rows) do
    row.field = row[3].make("joinproto." .. prefix .. "." .. row[1], row[2])
  end
  return rows
end

local HELLO = message("hello", {
  { "host", "Host", text, "host=" },
  { "local_device", "Local device", list(octet), "devices=" },
  { "gpu", "GPU", list(text) },
  { "libtorch", "libtorch", text },
  { "dataset_sig", "Dataset signature", signature },
})
local HELLO_4 = {}
for _, rows in ipairs({ HELLO, message("hello", {
  { "run_id", "Run id", option(text), "run=" },
  { "nccl_version", "NCCL version", option(version), "nccl=" },
  { "model_sig", "Model signature", option(signature) },
}) }) do
  for _, row in ipairs(rows) do
    HELLO_4[#HELLO_4 + 1] = row
  end
end
local ACCEPT = message("accept", {
  { "rank", "Rank", list(u32), "ranks=" },
  { "salt_hex", "Session salt", option(text) },
  { "formation_wait_secs", "Formation wait (s)", u64, "wait=" },
})
local REJECT = message("reject", { { "reason", "Reason", text, "" } })
local WORLD_FORMED = message("world_formed", {
  { "envelope_hex", "Envelope", text },
  { "relay_spec_hex", "Relay specification", option(text) },
})
local RANK_EXITED = message("rank_exited", {
  { "rank", "Rank", u32, "rank=" },
  { "code", "Exit code", i32, "code=" },
})
local ABORT = message("abort", { { "reason", "Reason", text, "" } })

local WIRES = {
  [2] = { [0] = HELLO, ACCEPT, REJECT, WORLD_FORMED, RANK_EXITED, ABORT },
  [4] = { [0] = HELLO_4, ACCEPT, REJECT, WORLD_FORMED, RANK_EXITED, ABORT },
}

local all = {}
for _, field in pairs(header) do
  all[#all + 1] = field
end
for _, rows in ipairs({ HELLO_4, ACCEPT, REJECT, WORLD_FORMED, RANK_EXITED, ABORT }) do
  for _, row in ipairs(rows) do
    all[#all + 1] = row.field
  end
end
join.fields = all
join.experts = complaints

-- One line in the list of packets; Wireshark itself would cut it at the first NUL.
local function short(value)
  if #value > 80 then
    value = value:sub(1, 80):gsub("[\192-\255][\128-\191]*$", "") .. "…"
  end
  return (value:gsub("%c", function(char) return ("\\x%02x"):format(char:byte()) end))
end

local function read_message(reader, wire)
  local number, range = reader:number(4)
  reader.tree:add(header.message, range, number)
  local rows = WIRES[wire][number]
  if not rows then
    reader:refuse(("variant %d is no message"):format(number), range:offset())
  end
  reader.shown = { MESSAGES[number] }
  for _, row in ipairs(rows) do
    reader.field = MESSAGES[number] .. "." .. row[1]
    local value = row[3].read(reader, row.field, row[2])
    if row[4] and value then
      reader.shown[#reader.shown + 1] = row[4] .. short(value)
    end
  end
  if reader.at < reader.stop then
    reader.tree
      :add(header.trailing, reader.tvb(reader.at, reader.stop - reader.at))
      :add_proto_expert_info(complaints.trailing)
  end
end

-- A whole payload; gives what the list of packets shows.
local function read_payload(tvb, start, size, wire, tree)
  local reader = Reader.new(tvb, start, start + size, tree)
  local fine, why = pcall(read_message, reader, wire)
  if not fine then
    if type(why) ~= "table" then
      error(why, 0)
    end
    local text = ("%s: %s, at byte %d of the payload"):format(
      reader.field or "message", why.text, why.at - start)
    tree:add_proto_expert_info(complaints.payload, text)
    return (reader.shown and reader.shown[1] or "Message") .. " (malformed)"
  end
  return table.concat(reader.shown, " ")
end

-- Following a stream ----------------------------------------------------------------------------

-- The connections between two endpoints, one after the other, each with the packet it was found in.
-- A connection has `channel` and two ways, and a way has `broken`, the packet with a frame that was
-- refused; and `waits`, the packets after which a payload was not whole or was again. About the
-- packet at hand a way has `is_first`, of its connection, and `patient`: what is not whole in it can
-- be put together with later ones.
--
-- All of it is learned on the first pass over the packets and only looked up afterwards, when they
-- come in any order. On the first pass there may be no fields of TCP to ask.
local streams = {}

function join.init()
  streams = {}
end

local function ends(pinfo)
  local from = tostring(pinfo.src) .. " " .. pinfo.src_port
  local to = tostring(pinfo.dst) .. " " .. pinfo.dst_port
  return from, to, from < to and from .. " " .. to or to .. " " .. from
end

-- The connection of a packet, or nil, and the two ways, that of the sender first.
local function find(pinfo)
  local from, to, both = ends(pinfo)
  local found
  for _, connection in ipairs(streams[both] or {}) do
    if connection.number <= pinfo.number then
      found = connection
    end
  end
  if found then
    return found, found.ways[from], found.ways[to]
  end
end

local function begin(pinfo)
  local from, to, both = ends(pinfo)
  streams[both] = streams[both] or {}
  local connection = { number = pinfo.number, ways = {} }
  connection.ways[from], connection.ways[to] = { waits = {} }, { waits = {} }
  table.insert(streams[both], connection)
end

-- From this packet on, a payload is waited for: `have` of `need` bytes are there; or none is.
local function wait(pinfo, way, have, need)
  local last = way.waits[#way.waits]
  if not pinfo.visited and (need or last and last.need) then
    table.insert(way.waits, { number = pinfo.number, have = have, need = need })
  end
end

-- What a reader refuses the header at `at` for: the complaint, the words, and the field's row.
local ROWS = {
  { header.magic, 0, 4 },
  { header.version, 4, 4 },
  { header.tag, 8, 8 },
  { header.kind, 16, 4 },
  { header.length, 20, 4 },
}

local function refusal(tvb, at)
  local magic, wire = tvb(at, 4):le_uint(), tvb(at + 4, 4):le_uint()
  local kind, length = tvb(at + 16, 4):le_uint(), tvb(at + 20, 4):le_uint()
  if magic ~= FRAME_MAGIC then
    return complaints.magic, ("0x%08X is not a frame's magic"):format(magic), 1
  elseif not WIRES[wire] then
    return complaints.version, ("wire version %d is not known"):format(wire), 2
  elseif not KINDS[kind] then
    return complaints.kind, ("kind %d is not one of 1 to 7"):format(kind), 4
  elseif length > MAX_PAYLOAD then
    return complaints.length, ("payload of %d bytes, more than %d"):format(length, MAX_PAYLOAD), 5
  end
end

local function add_header(tree, tvb, at, last)
  local item
  for row = 1, last do
    local field, offset, size = ROWS[row][1], ROWS[row][2], ROWS[row][3]
    item = tree:add_le(field, tvb(at + offset, size))
  end
  return item
end

-- A frame of which the capture does not have all, or which cannot be put together.
local function part_of_frame(tvb, at, pinfo, way, root)
  local tree = root:add(join, tvb(at), "flodl join channel, part of a frame")
  if tvb:len() - at >= HEADER and not refusal(tvb, at) then
    add_header(tree, tvb, at, #ROWS)
  end
  tree:add_proto_expert_info(complaints.not_whole)
  way.broken = way.broken or pinfo.number
  return tvb:len() - at, "Part of a frame"
end

local function refuse(tvb, at, pinfo, way, root)
  local why, words, row = refusal(tvb, at)
  if why == complaints.magic and at == 0 and not way.patient then
    return part_of_frame(tvb, at, pinfo, way, root)
  end
  local tree = root:add(join, tvb(at), "flodl join channel, a frame that is refused")
  add_header(tree, tvb, at, row):add_proto_expert_info(why, words)
  way.broken = way.broken or pinfo.number
  return tvb:len() - at, "Refused: " .. words
end

local function whole_frame(tvb, at, size, root)
  local tree = root:add(join, tvb(at, HEADER + size), "flodl join channel")
  add_header(tree, tvb, at, #ROWS)
  local kind = tvb(at + 16, 4):le_uint()
  local body = tree
  if size > 0 then
    body = tree:add(header.payload, tvb(at + HEADER, size))
  end
  if kind ~= JOIN_KIND then
    local words = ("kind %d (%s) on the join channel"):format(kind, KINDS[kind])
    tree:add_proto_expert_info(complaints.other_kind, words)
    return HEADER + size, "Frame of " .. words
  end
  local shown = read_payload(tvb, at + HEADER, size, tvb(at + 4, 4):le_uint(), body)
  tree:append_text(", " .. short(shown))
  return HEADER + size, shown
end

-- One thing in the stream: how many bytes it takes and what the list of packets shows; or nil and
-- how many more bytes it takes.
local function step(tvb, at, pinfo, way, root)
  local left = tvb:len() - at
  if way.is_first and at == 0 and left >= 4 and tvb(0, 4):le_uint() == JOIN_MAGIC then
    local tree = root:add(join, tvb(0, 4), "flodl join channel, dialed")
    tree:add_le(header.channel, tvb(0, 4))
    return 4
  end
  local missing = DESEGMENT_ONE_MORE_SEGMENT
  if left >= HEADER then
    if refusal(tvb, at) then
      return refuse(tvb, at, pinfo, way, root)
    end
    local size = tvb(at + 20, 4):le_uint()
    if left >= HEADER + size then
      return whole_frame(tvb, at, size, root)
    end
    missing = HEADER + size - left
    wait(pinfo, way, left - HEADER, size)
  end
  if not way.patient then
    return part_of_frame(tvb, at, pinfo, way, root)
  end
  return nil, missing
end

local function show(pinfo, shown)
  if #shown == 0 then
    return
  end
  -- More than one call for a packet: one with the rest of a frame, one with what follows.
  local before = pinfo.private.joinproto and "; " or ""
  pinfo.private.joinproto = "shown"
  pinfo.cols.info:clear()
  pinfo.cols.info:append(before .. table.concat(shown, "; "))
  pinfo.cols.info:fence()
end

local function follow(tvb, pinfo, way, root)
  local at, shown = 0, {}
  wait(pinfo, way)
  while at < tvb:len() do
    local used, told = step(tvb, at, pinfo, way, root)
    if not used then
      pinfo.desegment_offset = at
      pinfo.desegment_len = told
      break
    end
    shown[#shown + 1] = told
    at = at + used
  end
  if at == 4 and #shown == 0 then
    shown[1] = "Dial to the join channel"
  end
  show(pinfo, shown)
end

-- The channel that a connection's first bytes name; nil for a frame, or what is none of this.
local function channel_of(tvb)
  if tvb:len() >= 4 then
    return CHANNELS[tvb(0, 4):le_uint()] or HTTP[tvb:raw(0, 4)] and "HTTP"
  end
end

-- Bytes of another channel on the same port: told which, and left to others.
local function leave_alone(tvb, pinfo, name, root)
  if name == "HTTP" then
    root:add(join, tvb(), "HTTP on the port of a flodl controller")
    Dissector.get("http"):call(tvb, pinfo, root)
    return
  end
  local tree = root:add(join, tvb(), ("flodl %s channel, not dissected"):format(name))
  if channel_of(tvb) == name then
    tree:add_le(header.channel, tvb(0, 4))
  end
  show(pinfo, { ("flodl %s channel"):format(name) })
end

local function begins_frame(tvb)
  return tvb:len() >= HEADER and not refusal(tvb, 0)
end

local function dissect(tvb, pinfo, root, patient, by_hand)
  pinfo.cols.protocol = "JOIN"
  local connection, way = find(pinfo)
  local channel = channel_of(tvb)
  if not connection and tvb:len() < 4 and patient then
    pinfo.desegment_offset = 0
    pinfo.desegment_len = DESEGMENT_ONE_MORE_SEGMENT
    return
  end
  -- Between the same ports there may be one connection after another. Wireshark tells them apart and
  -- asks for each what it is, but not where it has been told by hand: then a magic begins the next.
  local anew = not by_hand or connection and connection.by_hand and channel and channel ~= "HTTP"
  local known = connection and (pinfo.visited or connection.number == pinfo.number)
  if not connection or anew and not known then
    begin(pinfo)
    connection, way = find(pinfo)
    connection.channel, connection.by_hand = channel or "join", by_hand
  end
  way.patient, way.is_first = patient, connection.number == pinfo.number
  if connection.channel ~= "join" then
    leave_alone(tvb, pinfo, connection.channel, root)
  elseif way.broken and way.broken < pinfo.number and not begins_frame(tvb) then
    root:add(join, tvb(), ("flodl join channel, of no use since packet %d"):format(way.broken))
  else
    follow(tvb, pinfo, way, root)
  end
end

function join.dissector(tvb, pinfo, root)
  dissect(tvb, pinfo, root, pinfo.can_desegment > 0, true)
  return tvb:len()
end

-- The join magic or the begin of it, another channel's magic, or, where the capture began too late
-- for those, a frame of the join channel.
local JOIN_BYTES = "\227\23\13\241"

local function looks_like_ours(tvb)
  local size = math.min(4, tvb:len())
  if tvb:raw(0, size) == JOIN_BYTES:sub(1, size) then
    return true
  end
  return size == 4 and CHANNELS[tvb(0, 4):le_uint()]
    or begins_frame(tvb) and tvb(16, 4):le_uint() == JOIN_KIND
end

join:register_heuristic("tcp", function(tvb, pinfo, root)
  if not looks_like_ours(tvb) then
    return false
  end
  -- A heuristic dissector is told that it cannot wait, and can.
  dissect(tvb, pinfo, root, tvb:len() == tvb:reported_len(), false)
  local connection = find(pinfo)
  if connection and connection.channel == "join" then
    pinfo.conversation = join
  end
  return true
end)

DissectorTable.get("tcp.port"):add_for_decode_as(join)

-- The end of a stream inside a payload, which no dissector is called for: there are no bytes.
local ending = Proto("joinproto_end", "flodl join channel, end of stream")
local fin = Field.new("tcp.flags.fin")
local reset = Field.new("tcp.flags.reset")

local function is_set(field)
  local info = field()
  return info and info.value
end

-- What a payload on this way had when the packet came, if it was not whole.
local function cut_payload(way, pinfo)
  local found
  for _, entry in ipairs(way.waits) do
    if entry.number <= pinfo.number then
      found = entry
    end
  end
  return found and found.need and found
end

function ending.dissector(tvb, pinfo, root)
  local connection, way, other = find(pinfo)
  if not connection or not (is_set(fin) or is_set(reset)) then
    return
  end
  local cut = cut_payload(way, pinfo) or is_set(reset) and cut_payload(other, pinfo)
  if cut then
    local words = ("the stream ended after %d of %d payload bytes"):format(cut.have, cut.need)
    root:add(join, tvb(), "flodl join channel, cut off"):add_proto_expert_info(complaints.cut, words)
    pinfo.cols.info:append(" [join: " .. words .. "]")
  end
end

register_postdissector(ending)
