-- Swaps a cell, if one is named, and changes what the claim honours; nothing if the cell has another version.
--
-- needs: calls record rate limits places line
-- KEYS  1: the partition
-- ARGV  1: now, regulations (msgpack); a regulation is subject letter, name, queue, and for each of permits,
--          max_running, rate (count, window in ms, bucket), weight and pauses whether it is set, and to what
--       2: 'cell' or ''  3: its key  4: the version seen  5: 'set' or 'delete'  6: the value  7: 8 bytes that tell this
--          call from any other, so that a repeat is answered as the first
-- Answer: {word, version}: 'ok' and the version of the cell now, or 'lost'
--
--   :k  hash: cell → version (8 bytes), the call that set it (8 bytes), value

local now, regulations = unpack(cmsgpack.unpack(ARGV[1]))
call('HDEL', P .. ':m', '')
local version = '0'
if ARGV[2] == 'cell' then
  local found = call('HGET', P .. ':k', ARGV[3])
  local seen = found and struct.unpack('>d', found) or 0
  if found and ARGV[5] == 'set' and sub(found, 9, 16) == ARGV[7] then
    return {'ok', tostring(seen)}
  elseif seen ~= tonumber(ARGV[4]) then
    return {'lost', '0'}
  end
  if ARGV[5] == 'delete' then
    call('HDEL', P .. ':k', ARGV[3])
  else
    -- Versions come from one counter, so that a cell which was deleted and made again never looks like the old one.
    local newest = call('HINCRBY', P .. ':m', 'cells', 1)
    call('HSET', P .. ':k', ARGV[3], struct.pack('>d', newest) .. ARGV[7] .. ARGV[6])
    version = tostring(newest)
  end
end

local keys, names = {}, {}
for _, r in ipairs(regulations) do
  if r[1] == 't' then
    keys[#keys + 1] = r[3] .. '\0' .. r[2]
  else
    names[#names + 1] = r[1] .. r[2]
  end
end
meet_tenants(keys)
meet_gates(names)
for _, r in ipairs(regulations) do
  local limits = r[1] == 't' and tenants[r[3] .. '\0' .. r[2]] or gates[r[1] .. r[2]]
  limits.is_changed = true
  if r[4] then
    limits.permits = r[5]
  end
  if r[6] then
    limits.max_running = r[7]
  end
  if r[8] then
    carry(limits, r[9], r[10], r[11], now)
  end
  if r[1] == 't' then
    if r[12] then
      limits.weight = r[13]
    end
    unblock(limits)
    local queue = queue_of(limits.queue)
    queue.is_changed = true
  else
    if limits.aside > 0 then
      look_again(limits, 0)
    end
    if r[1] == 'q' then
      local queue = queue_of(r[2])
      queue.is_changed = true
      if r[14] then
        queue.pauses = r[15]
      end
    end
  end
end
flush()
if regulations[1] then
  ring('*')
end
return {'ok', version}
