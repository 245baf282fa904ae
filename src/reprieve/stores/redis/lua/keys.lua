-- Unique keys of a store with several partitions. A key is reserved before its job is stored in another partition, and
-- confirmed afterwards.
--
-- needs: calls
-- KEYS  1: the hash tag of these keys
-- ARGV  1: 'reserve', 'confirm', 'expired' or 'drop'  2: now  3 …: see below
-- Answer of 'reserve' (key, id, until when it is kept, id of a holder that is gone or ''): {} if it is ours now, else
--          {holder, until when it is kept, whether it was confirmed, when it was reserved}
--        of 'confirm' (key, id) and 'drop' (key, holder): {}
--        of 'expired': {key, holder, …}
--
--   :u  hash: key → id of its job (16 bytes), until when it is kept (8), whether it is confirmed (1), since when (8)
--   :ux sorted set: key → until when

local word, now = ARGV[1], tonumber(ARGV[2])
local key, id = ARGV[3], ARGV[4]

local function read(name)
  local packed = call('HGET', P .. ':u', name)
  if packed then
    return struct.unpack('>c16dBd', packed)
  end
end

local function write(name, holder, til, confirmed, since)
  call('HSET', P .. ':u', name, struct.pack('>c16dBd', holder, til, confirmed, since))
  call('ZADD', P .. ':ux', til, name)
end

if word == 'reserve' then
  local holder, til, confirmed, since = read(key)
  if holder and holder ~= id and holder ~= ARGV[6] then
    return {holder, format('%.0f', til), confirmed, format('%.0f', since)}
  elseif holder ~= id then
    write(key, id, tonumber(ARGV[5]), 0, now)
  end
elseif word == 'confirm' then
  local holder, til, _, since = read(key)
  if holder == id then
    write(key, id, til, 1, since)
  end
elseif word == 'drop' then
  if read(key) == id then
    call('HDEL', P .. ':u', key)
    call('ZREM', P .. ':ux', key)
    return {1}
  end
elseif word == 'expired' then
  local answer = {}
  for _, name in ipairs(call('ZRANGEBYSCORE', P .. ':ux', '-inf', now, 'LIMIT', 0, 100)) do
    answer[#answer + 1] = name
    answer[#answer + 1] = read(name)
  end
  return answer
end
return {}
