-- The audit log: what people did. `:audit` has each entry by its place: its time and its number, 6 bytes each, so that
-- places are in the order of time. Sorted sets without scores have the places of all entries (`:audit_all`), and of those
-- of a tenant, an actor and a subject. Entries are never changed, and deleted only by their age.
--
-- needs calls: tag, call, call_many
-- exports: record_audit, forget_audit

local function indexes(entry)
  return {
    tag .. ':audit_all',
    tag .. ':audit_tenant:' .. (entry.tenant or ''),
    tag .. ':audit_actor:' .. entry.actor,
    tag .. ':audit_subject:' .. entry.kind .. ':' .. entry.name,
  }
end

-- Records packed entries.
function record_audit(packed_entries)
  for _, packed in ipairs(packed_entries) do
    local entry = cmsgpack.unpack(packed)
    local place = struct.pack('>I6I6', entry.at, call('HINCRBY', tag .. ':meta', 'last_audit', 1))
    call('HSET', tag .. ':audit', place, packed)
    for _, key in ipairs(indexes(entry)) do
      call('ZADD', key, 0, place)
    end
  end
end

-- Deletes entries from before a moment, the oldest first, at most so many; returns how many went.
function forget_audit(count, before)
  local places = call('ZRANGEBYLEX', tag .. ':audit_all', '-', '(' .. struct.pack('>I6', before), 'LIMIT', 0, count)
  for _, place in ipairs(places) do
    local packed = call('HGET', tag .. ':audit', place)
    for _, key in ipairs(packed and indexes(cmsgpack.unpack(packed)) or {tag .. ':audit_all'}) do
      call('ZREM', key, place)
    end
  end
  call_many('HDEL', tag .. ':audit', places)
  return #places
end
