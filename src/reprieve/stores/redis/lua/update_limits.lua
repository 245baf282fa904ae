-- Sets an entry, if one is named, and changes what the claim honours; nothing if the entry has another version.
-- With several partitions all of them come to honour the same: what is wanted is written down in the first, as a state
-- with a number, and the others are told one state after the other. Of a limit that is shared nobody has anything until
-- shares are dealt.
--
-- needs: calls record rate limits places line
-- KEYS  1: the partition
-- ARGV  1: now, updates, state (msgpack); an update is subject letter, name, queue, and for each of permits,
--          max_running, rate (count, window in ms, bucket), weight and pauses whether it is set, and to what.
--          A state is false for a store of one partition, else how, its number, and for 'note' and 'change' the number
--          that was seen, and how often one partition had been ruled alone (or -1):
--          'note' writes it down; 'change' does that and makes the change here as well, both in the first partition;
--          'next' is what came to the state before; 'whole' is all there is
--       2: 'entry' or ''  3: its key  4: the version seen  5: 'set' or 'delete'  6: the value  7: 8 bytes that tell this
--          call from any other, so that a repeat is answered as the first
--       8 …: for 'note' and 'change': fields of `:want`, each with its value
-- Returns: {word, version}: 'ok' and the version of the entry now; 'lost'; or, and nothing was done, 'overtaken': somebody
--          else has changed what is wanted, or the partition does not know the states before
--
--   :k  hash: entry → version (8 bytes), the call that set it (8 bytes), value
--   :kd:<call> string, for a minute: that call has deleted an entry
--   :want hash, of the first partition: subject \0 name \0 queue → what is wanted (msgpack); '' → ''
--   :m  hash: wants = the number of that state; heeds = that of the state which this partition honours;
--       ruled = how often it was limited as the only one

local now, updates, state = unpack(cmsgpack.unpack(ARGV[1]))
call('HDEL', P .. ':m', '')
local version = '0'
if ARGV[2] == 'entry' then
  local found = call('HGET', P .. ':k', ARGV[3])
  local seen = found and struct.unpack('>d', found) or 0
  if found and ARGV[5] == 'set' and sub(found, 9, 16) == ARGV[7] then
    return {'ok', tostring(seen)}
  elseif ARGV[5] == 'delete' and call('EXISTS', P .. ':kd:' .. ARGV[7]) == 1 then
    return {'ok', '0'}
  elseif seen ~= tonumber(ARGV[4]) then
    return {'lost', '0'}
  end
end

-- Everything is read before anything is written: a key of another kind fails the whole.
local keys, names = {}, {}
for _, r in ipairs(updates) do
  if r[1] == 't' then
    keys[#keys + 1] = r[3] .. '\0' .. r[2]
    queue_of(r[3])
  else
    names[#names + 1] = r[1] .. r[2]
    if r[1] == 'q' then
      queue_of(r[2])
    end
  end
end
meet_tenants(keys)
meet_limiters(names)
local wants, heeds, ruled = unpack(call('HMGET', P .. ':m', 'wants', 'heeds', 'ruled'))
wants, heeds, ruled = tonumber(wants or 0), tonumber(heeds or 0), tonumber(ruled or 0)
if state then
  local how, number, seen, seen_ruled = unpack(state)
  if how == 'note' and (wants ~= seen or seen_ruled >= 0 and seen_ruled ~= ruled)
    or how == 'change' and (wants ~= seen or heeds ~= seen)
    or how == 'next' and heeds < number - 1 then
    return {'overtaken', '0'}
  elseif how ~= 'note' and heeds >= number then
    return {'ok', '0'}
  end
  if how == 'note' or how == 'change' then
    local fields = {}
    for place = 8, #ARGV do
      fields[#fields + 1] = ARGV[place]
    end
    many('HSET', P .. ':want', fields)
    call('HSET', P .. ':m', 'wants', format('%.0f', number))
  end
  if how ~= 'note' then
    call('HSET', P .. ':m', 'heeds', format('%.0f', number))
  end
elseif wants > 0 and updates[1] then
  return {'overtaken', '0'}
elseif updates[1] then
  call('HINCRBY', P .. ':m', 'ruled', 1)
end

if ARGV[2] == 'entry' then
  if ARGV[5] == 'delete' then
    call('HDEL', P .. ':k', ARGV[3])
    call('SET', P .. ':kd:' .. ARGV[7], '', 'PX', 60000)
  else
    -- Versions come from one counter, so that an entry which was deleted and made again never looks like the old one.
    local newest = call('HINCRBY', P .. ':m', 'entries', 1)
    call('HSET', P .. ':k', ARGV[3], struct.pack('>d', newest) .. ARGV[7] .. ARGV[6])
    version = tostring(newest)
  end
end

-- A share of a limit that several partitions have.
local function share(limit)
  return limit and (state and 0 or limit)
end

for _, r in ipairs(updates) do
  local limits = r[1] == 't' and tenants[r[3] .. '\0' .. r[2]] or limiters[r[1] .. r[2]]
  limits.is_changed = true
  if r[4] then
    limits.permits = share(r[5])
  end
  if r[6] then
    limits.max_running = share(r[7])
  end
  if r[8] then
    carry(limits, share(r[9]), r[10], r[11], now)
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
-- Workers of every queue read what the fleet agrees on as soon as it changes.
if updates[1] or ARGV[2] == 'entry' then
  ring('*')
end
return {'ok', version}
