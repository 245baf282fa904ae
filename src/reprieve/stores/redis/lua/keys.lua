-- Unique keys of a store with several partitions. A key is reserved before its job is stored in another partition, and
-- confirmed afterwards.
--
-- needs: calls
-- KEYS  1: the hash tag of these keys
-- ARGV  1: 'reserve', 'confirm', 'doubtful' or 'sweep'  2: now  3 …: items, see below
-- Returns of 'reserve' (key, id, until when it is kept, id of a holder that is gone or ''): for each {} if it is ours now,
--          else {holder, until when it is kept, whether it was confirmed, when it was reserved}
--        of 'confirm' (key, id): for each whether it still had the key
--        of 'doubtful': {key, holder, whether it was never confirmed, …}, of keys whose time is up, and of reservations
--        of 'sweep' (key, holder, whether its job is there, since when a reservation lives): for each 1 if it went
--
--   :u  hash: key → id of its job (16 bytes), until when it is kept (8), whether it is confirmed (1), since when (8)
--   :ux sorted set: key → until when, or when to look again whether its job is gone
--   :ur sorted set: key that is reserved, and not confirmed → since when

local HOUR = 3600000
local MOST = 100 -- of either kind that one look finds
local SOON = 5000 -- milliseconds for which nobody doubts a reservation
local word, now, answer = ARGV[1], tonumber(ARGV[2]), {}

local function read(name)
  local packed = call('HGET', P .. ':u', name)
  if packed then
    return struct.unpack('>c16dBd', packed)
  end
end

local function write(name, holder, til, confirmed, since)
  call('HSET', P .. ':u', name, struct.pack('>c16dBd', holder, til, confirmed, since))
  call('ZADD', P .. ':ux', til, name)
  if confirmed == 0 then
    call('ZADD', P .. ':ur', since, name)
  else
    call('ZREM', P .. ':ur', name)
  end
end

if word == 'confirm' or word == 'sweep' then
  -- A first write that a full server allows, and with it all that follow: only new keys are refused.
  call('HDEL', P .. ':u', '')
end
if word == 'reserve' then
  for first = 3, #ARGV, 4 do
    local key, id, wanted, gone = ARGV[first], ARGV[first + 1], tonumber(ARGV[first + 2]), ARGV[first + 3]
    local holder, til, confirmed, since = read(key)
    if holder and holder ~= id and holder ~= gone then
      answer[#answer + 1] = {holder, format('%.0f', til), confirmed, format('%.0f', since)}
    else
      if holder ~= id then
        write(key, id, wanted, 0, now)
      elseif confirmed == 0 then
        -- Whoever repeats it has as much time as the first time.
        write(key, id, til, 0, max(since, now))
      end
      answer[#answer + 1] = {}
    end
  end
elseif word == 'confirm' then
  for first = 3, #ARGV, 2 do
    local holder, til, _, since = read(ARGV[first])
    local is_ours = holder == ARGV[first + 1]
    if is_ours then
      write(ARGV[first], holder, til, 1, since)
    end
    answer[#answer + 1] = is_ours and 1 or 0
  end
elseif word == 'sweep' then
  for first = 3, #ARGV, 4 do
    local key, is_there, went = ARGV[first], ARGV[first + 2] == '1', 0
    local holder, til, confirmed, since = read(key)
    if holder == ARGV[first + 1] then
      if is_there then
        -- Not before its job goes.
        call('ZADD', P .. ':ux', 'XX', now + HOUR, key)
      elseif til <= now or confirmed == 0 and since < tonumber(ARGV[first + 3]) then
        call('HDEL', P .. ':u', key)
        call('ZREM', P .. ':ux', key)
        call('ZREM', P .. ':ur', key)
        went = 1
      end
    end
    answer[#answer + 1] = went
  end
elseif word == 'doubtful' then
  for is_open, names in pairs({
    [0] = call('ZRANGEBYSCORE', P .. ':ux', '-inf', now, 'LIMIT', 0, MOST),
    [1] = call('ZRANGEBYSCORE', P .. ':ur', '-inf', now - SOON, 'LIMIT', 0, MOST),
  }) do
    for _, name in ipairs(names) do
      local place = #answer
      answer[place + 1], answer[place + 2], answer[place + 3] = name, (read(name)), is_open
    end
  end
end
return answer
