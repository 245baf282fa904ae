-- What a script reads of a job's record, and the one that it writes itself.
-- A record is: version (4 bytes), state (1), wait (1), deadline in ms (8, 0 is none), [when a script ended it (8)],
-- length of the lane's name (2), the lane's name, and the packed record, which only clients read (stores/record.py).
-- It is written at enqueue and when an attempt ends, not by a lease nor by a success.
--
-- needs calls: sub
-- exports: WAITING, DEAD, CANCELLED, EXPIRED, GIVEN_UP, lane_in, finish, ending, entry_of

WAITING, DEAD, CANCELLED, EXPIRED, GIVEN_UP = 0, 1, 2, 3, 4

function lane_in(record)
  local from = string.byte(record, 5) >= EXPIRED and 23 or 15
  local length = struct.unpack('>I2', record, from)
  return sub(record, from + 2, from + 1 + length)
end

-- Returns the record of a waiting job that a script ends: its deadline has passed, or its cancel was requested while it
-- ran. The client derives the rest by the core's rules.
function finish(record, state, at)
  local version, _, wait, deadline = struct.unpack('>I4BBd', record)
  return struct.pack('>I4BBdd', version + 1, state, wait, deadline, at) .. sub(record, 15)
end

-- Returns the event of such an end, which the client completes by the core's rules: a letter ('X' expired, 'C'
-- cancelled), when, the cancel request, and the job's record.
function ending(record, letter, at, cancel_request)
  return letter .. struct.pack('>dI2', at, #cancel_request) .. cancel_request .. record
end

-- Returns the entry of a job in its lane: its id and the version that it waits in. An entry whose version differs from
-- that of its job's record is a leftover.
function entry_of(id, version)
  return id .. struct.pack('>I2', version % 65536)
end
