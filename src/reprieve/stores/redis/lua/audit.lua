-- The audit log: what people did. `:audit` has each entry by its place: its time and its number, 6 bytes each, so that
-- places are in the order of time. Sorted sets without scores have the places of all entries (`:audit_all`), and of those
-- of a tenant, an actor and a subject. Entries are never changed, and deleted only by their age.
--
-- A stored entry is what the client has packed: a script unpacks a copy and never packs it again, which would change numbers and
-- lose nulls. What only the script knows stands behind it: the byte 193, the length of the entry (4 bytes), the entry, and a map
-- with further fields (msgpack).
--
-- needs calls: tag, call, sub, call_many
-- exports: with_fields, record_audit, forget_audit

local WITH_FIELDS = '\193' -- no msgpack begins with it

-- Returns a packed entry with further fields.
function with_fields(packed, fields)
  return WITH_FIELDS .. struct.pack('>I4', #packed) .. packed .. cmsgpack.pack(fields)
end

-- Returns an entry to read from; it raises an error for one that is damaged.
local function unpack_entry(stored)
  if sub(stored, 1, 1) ~= WITH_FIELDS then
    return cmsgpack.unpack(stored)
  end
  local length = struct.unpack('>I4', stored, 2)
  local entry = cmsgpack.unpack(sub(stored, 6, 5 + length))
  for name, value in pairs(cmsgpack.unpack(sub(stored, 6 + length))) do
    entry[name] = value
  end
  return entry
end

local function indexes(entry)
  return {
    tag .. ':audit_all',
    tag .. ':audit_tenant:' .. (entry.tenant or ''),
    tag .. ':audit_actor:' .. entry.actor,
    tag .. ':audit_subject:' .. entry.kind .. ':' .. entry.name,
  }
end

-- Returns the indexes of a stored entry; of one that is damaged only that of all.
local function indexes_of(stored)
  local is_sound, keys = pcall(function() return indexes(unpack_entry(stored)) end)
  return is_sound and keys or {tag .. ':audit_all'}
end

-- Records packed entries.
function record_audit(packed_entries)
  for _, packed in ipairs(packed_entries) do
    local entry = unpack_entry(packed)
    local place = struct.pack('>I6I6', entry.at, call('HINCRBY', tag .. ':meta', 'last_audit', 1))
    call('HSET', tag .. ':audit', place, packed)
    for _, key in ipairs(indexes(entry)) do
      call('ZADD', key, 0, place)
    end
  end
end

-- Deletes entries from before a moment, the oldest first, at most so many; returns how many went. From an index goes all that is
-- older as well: the place of an entry whose indexes could not be read any more.
function forget_audit(count, before)
  local places = call('ZRANGEBYLEX', tag .. ':audit_all', '-', '(' .. struct.pack('>I6', before), 'LIMIT', 0, count)
  for _, place in ipairs(places) do
    for _, key in ipairs(indexes_of(call('HGET', tag .. ':audit', place))) do
      call('ZREMRANGEBYLEX', key, '-', '[' .. place)
    end
  end
  call_many('HDEL', tag .. ':audit', places)
  return #places
end
