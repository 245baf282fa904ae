-- What a script reads of a job's record, and the one that it writes itself.
-- A record is: version (4 bytes), state (1), wait (1), deadline in ms (8, 0 is none), [when a script ended it (8)],
-- length of the lane's name (2), the lane's name, [the SLA (8) if the lane is in that order], [the cause], and the packed
-- record, which only clients read (stores/record.py). A job that has failed has a cause, and 32768 is added to the length of
-- its lane's name. A cause is: why the job is dead, the code and the fingerprint of its last failure, each after its length
-- (1, 2 and 2).
-- It is written at enqueue and when an attempt ends, not by a lease nor by a success.
--
-- needs calls: sub
-- exports: WAITING, DEAD, CANCELLED, EXPIRED, GIVEN_UP, is_sound, sound, lost_lane, lane_in, sla_in, cause_in, finish, ending, entry_of

WAITING, DEAD, CANCELLED, EXPIRED, GIVEN_UP = 0, 1, 2, 3, 4
local MAX_WAIT = 4
local HAS_CAUSE = 32768
local CAUSE = '>Bc0I2c0I2c0'
local LANE = '^%Z*%z%Z*%z%Z*%z%Z*%z%Z*%z[1-9a-i]$'

-- Returns where the lane's name begins in a record and where it ends, and whether a cause follows.
local function lane_place(record)
  local from = string.byte(record, 5) >= EXPIRED and 23 or 15
  local length = struct.unpack('>I2', record, from)
  return from + 2, from + 1 + length % HAS_CAUSE, length >= HAS_CAUSE
end

-- Returns where the cause begins in a record whose lane's name ends here.
local function cause_place(record, last)
  return string.find(record, '^%l', last) and last + 9 or last + 1
end

-- Whether scripts can read a record up to the packed record.
function is_sound(record)
  if #record < 16 then
    return false
  end
  local state, wait = string.byte(record, 5, 6)
  if state > GIVEN_UP or wait > MAX_WAIT or state >= EXPIRED and #record < 24 then
    return false
  end
  local first, last, has_cause = lane_place(record)
  if #record < last or not string.find(sub(record, first, last), LANE) then
    return false
  end
  return not has_cause or (pcall(struct.unpack, CAUSE, record, cause_place(record, last)))
end

-- Returns a record that scripts can read: the record itself, or a head with what is known of the job besides, followed by
-- the bytes that cannot be read. The client takes it for the job of an unreadable record.
function sound(record, version, lane)
  if is_sound(record) then
    return record
  end
  return struct.pack('>I4BBdI2', version, WAITING, 0, 0, #lane) .. lane .. record
end

-- Returns the lane of jobs of a queue of which no lane is known.
function lost_lane(queue)
  return queue .. '\0\0unreadable\0\0\0' .. '5'
end

function lane_in(record)
  local first, last = lane_place(record)
  return sub(record, first, last)
end

-- Returns the SLA of a job, whose lane is in the order of it.
function sla_in(record)
  local _, last = lane_place(record)
  return #record >= last + 8 and struct.unpack('>d', record, last + 1) or 0
end

-- Returns why a job is dead, and the code and the fingerprint of its last failure; empty texts for what it does not have.
function cause_in(record)
  local is_expired = string.byte(record, 5) == EXPIRED
  local _, last, has_cause = lane_place(record)
  if not has_cause then
    return is_expired and 'expired' or '', is_expired and 'expired' or '', ''
  end
  local death, code, fingerprint = struct.unpack(CAUSE, record, cause_place(record, last))
  return is_expired and 'expired' or death, code, fingerprint
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
