-- The partition's hash tag, and commands with any number of arguments.
-- KEYS[1] of every script is the hash tag that all keys of the partition begin with.
--
-- exports: tag, call, floor, max, min, concat, sub, format
-- exports: MAX_ARGUMENTS, call_many, fetch_fields, split, list_in, unread_names, server_time, write_even_when_full, notify

tag = KEYS[1]
call, floor, max, min = redis.call, math.floor, math.max, math.min
concat, sub, format = table.concat, string.sub, string.format
MAX_ARGUMENTS = 1000 -- of one command: `unpack` fails near 8,000

local SCHEMA_VERSION = 1 -- that this release knows; topology.py has the same number

-- A newer release may have migrated the partition, while this one runs, to what this one cannot use.
if tonumber(call('HGET', tag .. ':meta', 'oldest_schema') or 0) > SCHEMA_VERSION then
  local made_by = call('HMGET', tag .. ':meta', 'oldest_schema', 'oldest_release', 'migrated_by')
  return redis.error_reply('NEWERSCHEMA ' .. concat(made_by, ' '))
end

local MAX_NOTIFICATIONS = 64 -- that the stream keeps; the Python listener knows this number

-- Runs a command with all items of a list, in as many calls as that takes.
function call_many(command, key, list)
  for first = 1, #list, MAX_ARGUMENTS do
    call(command, key, unpack(list, first, min(first + MAX_ARGUMENTS - 1, #list)))
  end
end

-- Returns the values of any number of fields of a hash; false for a field that is missing.
function fetch_fields(key, fields)
  if #fields == 0 then
    return {}
  elseif #fields <= MAX_ARGUMENTS then
    return call('HMGET', key, unpack(fields))
  end
  local values = {}
  for first = 1, #fields, MAX_ARGUMENTS do
    local slice = call('HMGET', key, unpack(fields, first, min(first + MAX_ARGUMENTS - 1, #fields)))
    for number = 1, #slice do
      values[first + number - 1] = slice[number]
    end
  end
  return values
end

-- Cuts joined items of one width apart.
function split(joined, width)
  local parts = {}
  for first = 1, #joined, width do
    parts[#parts + 1] = sub(joined, first, first + width - 1)
  end
  return parts
end

-- Returns the list under a key of a table, and makes it if there is none.
function list_in(lists, key)
  local list = lists[key]
  if not list then
    list = {}
    lists[key] = list
  end
  return list
end

-- Returns the names that are missing in a cache, each once, and reserves their places in it.
function unread_names(cache, names)
  local unread = {}
  for number = 1, #names do
    local name = names[number]
    if not cache[name] then
      cache[name] = true
      unread[#unread + 1] = name
    end
  end
  return unread
end

-- Returns the server's time in milliseconds.
function server_time()
  local time = call('TIME')
  return tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)
end

-- Makes the script's first write one that a server without memory allows. Such a server checks only the first write of
-- a script, so all that follow are allowed too: what is stored can always be worked off.
function write_even_when_full()
  call('HDEL', tag .. ':meta', '')
end

-- Wakes the workers that wait for jobs of a queue; '*' wakes those of every queue. Returns the notification's id.
function notify(queue)
  return call('XADD', tag .. ':notifications', 'MAXLEN', MAX_NOTIFICATIONS, '*', 'q', queue)
end
