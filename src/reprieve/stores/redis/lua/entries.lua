-- Entries: `:entries` has each by its key: version (8), the write that set it (8), when it expires or 0 (8), and its value.
-- `:entry_keys` has the keys in order, `:entry_expiry` those that expire, `:entry_changes` the last changes.
--
-- needs calls: tag, call
-- exports: read_entry, change_entry, forget_entries

local MAX_CHANGES_KEPT = 10000 -- that `entries_since` knows; stores/entry_cursor.py has the same number

-- Returns the version of an entry; 0 if there is none, or it has expired.
function read_entry(key, now)
  local found = call('HGET', tag .. ':entries', key)
  if not found then
    return 0
  end
  local version, _, expires = struct.unpack('>dc8d', found)
  return (expires == 0 or expires > now) and version or 0
end

-- Sets an entry, or deletes it without a value; returns the number of the change.
function change_entry(key, write_id, value, expires)
  -- Versions come from one counter, so that an entry which was deleted and set again never has an old one.
  local version = call('HINCRBY', tag .. ':meta', 'last_entry_version', 1)
  call('ZADD', tag .. ':entry_changes', version, write_id .. key)
  call('ZREMRANGEBYSCORE', tag .. ':entry_changes', '-inf', version - MAX_CHANGES_KEPT)
  if value then
    call('HSET', tag .. ':entries', key, struct.pack('>dc8d', version, write_id, expires) .. value)
    call('ZADD', tag .. ':entry_keys', 0, key)
  else
    call('HDEL', tag .. ':entries', key)
    call('ZREM', tag .. ':entry_keys', key)
  end
  if value and expires > 0 then
    call('ZADD', tag .. ':entry_expiry', expires, key)
  else
    call('ZREM', tag .. ':entry_expiry', key)
  end
  return version
end

-- Deletes entries that have expired, at most so many; returns how many.
function forget_entries(count, now, write_id)
  local keys = call('ZRANGEBYSCORE', tag .. ':entry_expiry', '-inf', now, 'LIMIT', 0, count)
  for _, key in ipairs(keys) do
    change_entry(key, write_id)
  end
  return #keys
end
