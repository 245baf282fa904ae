-- Unique keys of a store with several partitions. A key is reserved before its job is stored in another partition, and
-- confirmed afterwards.
--
-- needs calls: tag, call, max, format, write_even_when_full
-- KEYS     1: the hash tag of these keys
-- ARGV     1: 'reserve', 'confirm', 'doubtful' or 'sweep'  2: now  3 …: items, see below
-- Returns: of 'reserve' (key, id, until when it is kept, id of a holder that is gone or ''): for each {} if the key is
--          the caller's now, else {holder, until when it is kept, whether it is confirmed, when it was reserved}
--          of 'confirm' (key, id): for each whether it still had the key
--          of 'doubtful': {key, holder, 'expired' or 'reserved', …}: keys whose time is up, and reservations
--          of 'sweep' (key, holder, whether its job holds it, since when a reservation lives): for each 1 if it went

local HOUR_MS = 3600000
local MAX_DOUBTFUL = 100 -- of either kind
local TRUSTED_MS = 5000 -- for which a reservation is not doubtful

local step, now = ARGV[1], tonumber(ARGV[2])

local function read(key)
  local packed = call('HGET', tag .. ':unique_keys', key)
  if packed then
    return struct.unpack('>c16dBd', packed)
  end
end

local function write(key, holder, until_at, confirmed, since)
  call('HSET', tag .. ':unique_keys', key, struct.pack('>c16dBd', holder, until_at, confirmed, since))
  call('ZADD', tag .. ':unique_key_expiry', until_at, key)
  if confirmed == 0 then
    call('ZADD', tag .. ':unique_key_reservations', since, key)
  else
    call('ZREM', tag .. ':unique_key_reservations', key)
  end
end

local function reserve()
  local answer = {}
  for first = 3, #ARGV, 4 do
    local key, id, kept_until, gone = ARGV[first], ARGV[first + 1], tonumber(ARGV[first + 2]), ARGV[first + 3]
    local holder, until_at, confirmed, since = read(key)
    if holder and holder ~= id and holder ~= gone then
      answer[#answer + 1] = {holder, format('%.0f', until_at), confirmed, format('%.0f', since)}
    else
      if holder ~= id then
        write(key, id, kept_until, 0, now)
      elseif confirmed == 0 then
        -- A repeat has as much time as the first call.
        write(key, id, until_at, 0, max(since, now))
      end
      answer[#answer + 1] = {}
    end
  end
  return answer
end

local function confirm()
  local answer = {}
  for first = 3, #ARGV, 2 do
    local key, id = ARGV[first], ARGV[first + 1]
    local holder, until_at, _, since = read(key)
    if holder == id then
      write(key, holder, until_at, 1, since)
    end
    answer[#answer + 1] = holder == id and 1 or 0
  end
  return answer
end

local function sweep()
  local answer = {}
  for first = 3, #ARGV, 4 do
    local key, is_stored, went = ARGV[first], ARGV[first + 2] == '1', 0
    local holder, until_at, confirmed, since = read(key)
    if holder == ARGV[first + 1] then
      if is_stored then
        -- Its job waits, runs, or is kept as dead or cancelled.
        call('ZADD', tag .. ':unique_key_expiry', 'XX', now + HOUR_MS, key)
      elseif until_at <= now or confirmed == 0 and since < tonumber(ARGV[first + 3]) then
        call('HDEL', tag .. ':unique_keys', key)
        call('ZREM', tag .. ':unique_key_expiry', key)
        call('ZREM', tag .. ':unique_key_reservations', key)
        went = 1
      end
    end
    answer[#answer + 1] = went
  end
  return answer
end

local function add_doubtful(answer, index, before, why)
  for _, key in ipairs(call('ZRANGEBYSCORE', tag .. index, '-inf', before, 'LIMIT', 0, MAX_DOUBTFUL)) do
    local count = #answer
    answer[count + 1], answer[count + 2], answer[count + 3] = key, (read(key)), why
  end
end

if step == 'reserve' then
  return reserve()
end
-- Only new keys are refused when the server is full.
write_even_when_full()
if step == 'confirm' then
  return confirm()
elseif step == 'sweep' then
  return sweep()
end
local answer = {}
add_doubtful(answer, ':unique_key_expiry', now, 'expired')
add_doubtful(answer, ':unique_key_reservations', now - TRUSTED_MS, 'reserved')
return answer
