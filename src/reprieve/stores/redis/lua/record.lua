-- Part: what a script reads of a job's record, and the one that it writes itself.
-- A record is: version (4 bytes), state (1), wait (1), deadline in ms (8, 0 is none), [when a script ended it (8)],
-- length of the lane's name (2), the lane's name, and the packed record, which only clients read (stores/record.py).
-- It is written at enqueue and when an attempt ends, not by a lease nor by a success.

local WAITING, DEAD, CANCELLED, EXPIRED, GIVEN_UP = 0, 1, 2, 3, 4

local function lane_in(record)
  local from = string.byte(record, 5) >= EXPIRED and 23 or 15
  local length = struct.unpack('>I2', record, from)
  return sub(record, from + 2, from + 1 + length)
end

-- A waiting job that a script ends: its deadline has passed, or somebody had asked it to stop while it ran. The client
-- derives the rest by the core's rules.
local function finish(record, state, at)
  local version, _, wait, deadline = struct.unpack('>I4BBd', record)
  return struct.pack('>I4BBdd', version + 1, state, wait, deadline, at) .. sub(record, 15)
end

-- Its event, of which the client makes one by the core's rules: a letter, when, the wish to stop, and what the job was.
local function ending(record, letter, at, wish)
  return letter .. struct.pack('>dI2', at, #wish) .. wish .. record
end

-- What stands in a lane for a job: its id and the version that it waits in. An entry whose version is not that of its
-- job's record is a leftover.
local function entry_of(id, version)
  return id .. struct.pack('>I2', version % 65536)
end
